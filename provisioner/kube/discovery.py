"""Which kinds an API server has: a missing one switches a feature off, never the process."""

import msgspec

from provisioner.model.errors import KubeError, Reason

# Aggregated discovery, stable since Kubernetes 1.30: two requests instead of one per group.
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: list[_Resource] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct, frozen=True):
    kind: str
    items: list[_Group] | None = None


_GROUPS = msgspec.json.Decoder(_Groups)


def read(data: bytes) -> set[tuple[str, str]]:
    """The kinds in an aggregated discovery document, as (apiVersion, plural).

    Raises:
        KubeError: UNREADABLE for any other document, so that nothing is switched off by mistake.
    """
    try:
        groups = _GROUPS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        message = f"cannot read what the API server serves: {exc}"
        raise KubeError(Reason.UNREADABLE, message) from exc
    if groups.kind != "APIGroupDiscoveryList":
        message = f"expected aggregated discovery (Kubernetes 1.30 or later), got {groups.kind}"
        raise KubeError(Reason.UNREADABLE, message)
    return {
        (f"{group.metadata.name}/{version.version}".lstrip("/"), found.resource)
        for group in groups.items or ()
        for version in group.versions or ()
        for found in version.resources or ()
    }

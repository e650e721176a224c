"""Sends writes of accounts, none of which is kept, and sees which policies would refuse each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import yaml

from provisioner.model.volume_move import GROUP
from provisioner.sandbox.api import PATCH_TYPES, Api, ApiError
from provisioner.sandbox.installation import MANIFESTS
from tests.cluster.account_writes import (
    ACCEPTED,
    ADMINISTRATOR,
    INVALID,
    MOVE,
    MOVER,
    NAME,
    REFUSED,
    RELEASER,
    SPECIMENS,
    TENANT,
    Answer,
    Write,
)
from tests.cluster.accounts import CONTROLLER, WEBHOOK, token_of
from tests.cluster.audit import THIEF
from tests.cluster.background import Background
from tests.cluster.replicas import eventually

Json = dict[str, Any]

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
# The API server shortens the warnings of one answer to 4,096 characters.
MOST_WARNED = 4000
# A busy machine needs a minute for the expressions of a hundred policies.
COMPILED_S = 300.0
UNPROCESSABLE = 422


@dataclass
class Thief:
    """Somebody with a token of each account, and the administrator's to look on."""

    api: Api
    session: aiohttp.ClientSession
    headers: dict[str, dict[str, str]]
    _sentinels: Iterable[int] = field(default_factory=itertools.count)

    async def answer(self, write: Write) -> Answer:
        """Whether a write would be accepted.

        Raises:
            ApiError: it was refused for another reason.
        """
        status, message, _ = await self._sent(write)
        if "ValidatingAdmissionPolicy" in message:
            return REFUSED
        if status == UNPROCESSABLE:
            return INVALID
        if status >= 400:
            raise ApiError(status, f"{write}: {status} {message}")
        return ACCEPTED

    async def warned(self, write: Write) -> set[str]:
        """The policies that would refuse a write and only warn."""
        _, _, warnings = await self._sent(write)
        assert sum(map(len, warnings)) < MOST_WARNED, "too many policies at once"
        found = (re.search(r"ValidatingAdmissionPolicy '([^']+)'", each) for each in warnings)
        return {each[1] for each in found if each}

    async def _sent(self, write: Write) -> tuple[int, str, list[str]]:
        merges = "application/json" if write.method == "POST" else PATCH_TYPES["merge"]
        content_type = "application/json-patch+json" if isinstance(write.body, list) else merges
        async with self.session.request(
            write.method,
            write.path,
            json=write.body,
            headers=self.headers[write.account] | {"Content-Type": content_type},
            params={"dryRun": "All"},
        ) as reply:
            answer = await reply.json()
            warnings = reply.headers.getall("Warning", [])
            return reply.status, answer.get("message", "") if reply.status >= 400 else "", warnings

    @contextlib.asynccontextmanager
    async def with_policies(self, policies: dict[str, Json]) -> AsyncIterator[None]:
        """Policies by name that only warn, in force.

        The API server learns of policies, and of bindings, in the order in which they were
        written. When the last one warns, all others count.
        """
        sentinel = f"sentinel-{next(iter(self._sentinels))}"
        last = that_warns(sentinel, _refusing("configmaps"))
        probe = Write(
            ACCEPTED,
            ADMINISTRATOR,
            "creates a ConfigMap",
            f"/api/v1/namespaces/{NAME}/configmaps",
            {"metadata": {"name": sentinel}},
            "POST",
        )

        async def counts() -> bool:
            return sentinel in await self.warned(probe)

        async def is_gone() -> bool:
            return not await counts()

        all_of_them = [each for name in policies for each in that_warns(name, policies[name])]
        await asyncio.gather(*(self.create(each) for each in all_of_them))
        try:
            for each in last:
                await self.create(each)
            await eventually("the policies are in force", counts, COMPILED_S)
            yield
        finally:
            await asyncio.gather(*(self.delete(each) for each in all_of_them))
            for each in last:
                await self.delete(each)
            await eventually("the policies are gone", is_gone, COMPILED_S)

    async def create(self, body: Json) -> None:
        """Create an object of one of KINDS."""
        await self.api.create(KINDS[body["kind"]], body)

    async def delete(self, body: Json) -> None:
        """Delete it, whether or not it is there."""
        await removed(self.api, f"{KINDS[body['kind']]}/{body['metadata']['name']}")


def that_warns(name: str, policy: Json) -> list[Json]:
    """A copy of a policy under another name, and its binding."""
    spec = policy["spec"]
    # Short, because the API server limits what it writes in one answer.
    validations = [
        {"expression": each["expression"], "message": "-"} for each in spec["validations"]
    ]
    return [
        {
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": spec | {"validations": validations},
        },
        {
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Warn"]},
        },
    ]


def _refusing(resource: str) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    constraints = {"resourceRules": [rule | {"operations": ["CREATE"]}]}
    return {"spec": {"matchConstraints": constraints, "validations": [{"expression": "false"}]}}


async def removed(api: Api, path: str) -> None:
    """Delete an object, and let go of it."""
    with contextlib.suppress(ApiError):
        await api.delete(path)
        await api.patch(path, {"metadata": {"finalizers": None}})


_BINDINGS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAME}/rolebindings"
GROUPS: dict[str, tuple[str, str, str, str]] = {
    RELEASER: (f"{NAME}-releases", "storage.k8s.io", "volumeattachments", "delete"),
    MOVER: (f"{NAME}-moves", "", "persistentvolumeclaims", "create"),
}
"""What the policies ask of those that a component of the manifests gives more rights: the name of a
group that only the thief has, and the group of the API, the resource and the verb of its right."""


def _installed_with_moves() -> list[Json]:
    """Their kind and their policies."""
    files = (MANIFESTS / "volume-moves" / f"{each}.yaml" for each in ("crd", "policy"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def _of_the_tenant() -> Json:
    """All rights in one namespace, as many teams have them in theirs."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": NAME}],
    }


def _more_rights() -> list[Json]:
    found = [each for right in GROUPS.values() for each in _right(*right)]
    verbs, group = ("create", "delete", "patch"), GROUPS[MOVER][0]
    found += _right(f"{NAME}-pods", "", "pods", *verbs, to=group)
    return found + _right(f"{NAME}-statuses", GROUP, "volumemoves/status", "patch", to=group)


def _right(name: str, api_group: str, resource: str, *verbs: str, to: str = "") -> list[Json]:
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [api_group], "resources": [resource], "verbs": [*verbs]}
    return [
        {"kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": to or name}],
        },
    ]


async def _is_served(api: Api) -> bool:
    try:
        await api.get(MOVE.rpartition("/")[0])
    except ApiError:
        return False
    return True


@contextlib.asynccontextmanager
async def a_thief(background: Background) -> AsyncIterator[Thief]:
    """With all accounts, and the specimens that their writes are about."""
    plane = background.sandbox.plane
    admin = {"Authorization": f"Bearer {plane.credentials.tokens['admin']}"}
    headers = {
        account: {"Authorization": f"Bearer {await token_of(background, account)}"}
        for account in (CONTROLLER, WEBHOOK)
    }
    headers[ADMINISTRATOR] = admin
    headers[TENANT] = admin | {"Impersonate-User": NAME}
    for account, (group, *_) in GROUPS.items():
        headers[account] = admin | {
            "Impersonate-User": f"system:serviceaccount:ebs-provisioner:{CONTROLLER}",
            "Impersonate-Group": group,
        }
    context = ssl.create_default_context(cafile=str(plane.credentials.authority))
    async with (
        Api(plane.server, plane.credentials.authority, plane.credentials.tokens["admin"]) as api,
        aiohttp.ClientSession(
            plane.server,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"User-Agent": THIEF},
        ) as session,
    ):
        thief = Thief(api, session, headers)
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAME}})
        try:
            for body in (*_more_rights(), *_installed_with_moves()):
                await thief.create(body)
            await api.create(_BINDINGS, _of_the_tenant())
            await eventually("VolumeMoves are served", lambda: _is_served(api))
            for path, body in SPECIMENS.items():
                await api.create(path.rpartition("/")[0], body)
            async with thief.with_policies({}):
                yield thief
        finally:
            for path in SPECIMENS:
                await removed(api, path)
            for body in (*_more_rights(), *_installed_with_moves()):
                await thief.delete(body)
            await api.delete(f"/api/v1/namespaces/{NAME}")

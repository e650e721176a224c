"""Lists what is in an image, as SPDX and as CycloneDX.

Source: SPDX 2.3 (spdx.github.io/spdx-spec/v2.3), CycloneDX 1.6 (cyclonedx.org/docs/1.6/json) and
the package URL types deb and pypi (package-url/purl-spec), read 2026-11-23.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from image.debian import Package
from image.source import Source

_TOOL: Final = "make image"


@dataclass(frozen=True)
class Component:
    """One package, with its package URL and the hash of the archive that it came in."""

    name: str
    version: str
    purl: str
    sha256: str
    license: str = ""
    """An SPDX expression; empty if its archive names none that can be taken as it is."""


def of_debian(packages: Sequence[Package], architecture: str) -> Iterator[Component]:
    """Yield Debian's packages; their licenses are in the image, as Debian's copyright files.

    Debian reports vulnerabilities by source package, which scanners look for in ``upstream`` (as
    anchore/syft v1 writes it, read 2026-11-23).
    """
    for each in packages:
        version = quote(each.version, safe="")
        where = f"?arch={architecture}&distro=debian-12"
        if each.source != each.name:
            where += f"&upstream={quote(each.source, safe='')}"
        yield Component(
            each.name, each.version, f"pkg:deb/debian/{each.name}@{version}{where}", each.sha256
        )


def of_wheels(folder: Path) -> Iterator[Component]:
    """Yield what is in a folder of wheels."""
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            [name] = [each for each in wheel.namelist() if _is_metadata(each)]
            fields = email.message_from_bytes(wheel.read(name))
        known = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
        yield Component(
            fields["Name"],
            fields["Version"],
            f"pkg:pypi/{known}@{fields['Version']}",
            hashlib.sha256(path.read_bytes()).hexdigest(),
            fields["License-Expression"] or "",
        )


def _is_metadata(path: str) -> bool:
    return path.endswith(".dist-info/METADATA") and path.count("/") == 1


def spdx(name: str, digest: str, source: Source, components: Sequence[Component]) -> bytes:
    """Return the list as SPDX 2.3, in JSON."""
    image = {
        **_spdx_package("SPDXRef-image", name, source.version),
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest.removeprefix("sha256:")}],
    }
    contained = [
        {
            **_spdx_package(f"SPDXRef-package-{number}", each.name, each.version, each.license),
            "checksums": [{"algorithm": "SHA256", "checksumValue": each.sha256}],
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": each.purl,
                }
            ],
        }
        for number, each in enumerate(components)
    ]
    relationships = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")]
    relationships += [_relation("SPDXRef-image", "CONTAINS", one["SPDXID"]) for one in contained]
    return _json(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"{name}-{source.version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{_uuid(digest)}",
            "creationInfo": {"created": _time(source), "creators": [f"Tool: {_TOOL}"]},
            "packages": [image, *contained],
            "relationships": relationships,
        }
    )


def _spdx_package(identifier: str, name: str, version: str, licence: str = "") -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence or "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def cyclonedx(name: str, digest: str, source: Source, components: Sequence[Component]) -> bytes:
    """Return the list as CycloneDX 1.6, in JSON."""
    image = {
        "bom-ref": "image",
        "type": "container",
        "name": name,
        "version": source.version,
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
    }
    contained = [
        {
            "bom-ref": each.purl,
            "type": "library",
            "name": each.name,
            "version": each.version,
            "purl": each.purl,
            "hashes": [{"alg": "SHA-256", "content": each.sha256}],
            **({"licenses": [{"expression": each.license}]} if each.license else {}),
        }
        for each in components
    ]
    return _json(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{_uuid(digest)}",
            "version": 1,
            "metadata": {
                "timestamp": _time(source),
                "tools": {"components": [{"type": "application", "name": _TOOL}]},
                "component": image,
            },
            "components": contained,
            "dependencies": [{"ref": "image", "dependsOn": [one["bom-ref"] for one in contained]}],
        }
    )


def _uuid(digest: str) -> uuid.UUID:
    """Return the same UUID for the same image."""
    return uuid.uuid5(uuid.NAMESPACE_URL, digest)


def _time(source: Source) -> str:
    return source.created.strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()

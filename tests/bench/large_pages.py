"""The pages in which an API server lists a large cluster, made by a process of their own.

Made in the process that is measured, their objects would count as its memory, and their making as
its CPU time.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from tests.bench import standing
from tests.bench.standing import Standing

PAGE = 500
_LENGTH = 8  # bytes before each page; 0 after the last


async def read(plural: str, there: Standing) -> AsyncIterator[bytes]:
    """The pages of a kind, in order."""
    counts = map(str, (there.volumes, there.nodes, there.attachments))
    argv = (sys.executable, "-m", __name__, plural, *counts)
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    while size := int.from_bytes(await process.stdout.readexactly(_LENGTH)):
        yield await process.stdout.readexactly(size)
    await process.wait()


def made(plural: str, there: Standing) -> Iterator[bytes]:
    """The same, made here."""
    of_kind: dict[str, tuple[int, Any]] = {
        CLAIMS.plural: (there.volumes, lambda n: standing.claim(n, there.nodes)),
        PERSISTENT_VOLUMES.plural: (there.volumes, standing.persistent_volume),
        ATTACHMENTS.plural: (there.attachments, lambda n: standing.attachment(n, there.nodes)),
        NODES.plural: (there.nodes, standing.node),
        CSI_NODES.plural: (there.nodes, standing.csi_node),
        STORAGE_CLASSES.plural: (1, lambda _: standing.storage_class()),
    }
    count, make = of_kind.get(plural, (0, None))
    for at in range(0, max(count, 1), PAGE):
        items = [_listed(make(n), n) for n in range(at, min(at + PAGE, count))]
        more = "more" if at + PAGE < count else ""
        listing = {"metadata": {"resourceVersion": "10", "continue": more}, "items": items}
        yield json.dumps(listing).encode()


def _listed(body: dict[str, Any], n: int) -> dict[str, Any]:
    body["metadata"]["resourceVersion"] = str(n % 9 + 1)
    return body


def main() -> None:
    """Write each page behind its length."""
    plural, *counts = sys.argv[1:]
    for page in made(plural, Standing(*map(int, counts))):
        sys.stdout.buffer.write(len(page).to_bytes(_LENGTH) + page)
    sys.stdout.buffer.write(bytes(_LENGTH))


if __name__ == "__main__":
    main()

"""The product's controller, which notes each request to the API server: ``REQUESTS`` names the file.

One line for each request that ends: its method and its resource. Watches are none of them. It is
told apart from all others at the API server in this way, at less than 10 µs a request.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from provisioner import cli
from provisioner.kube.client import Transport

REQUESTS = "BENCH_REQUESTS"


def read(path: Path, offset: int = 0) -> Counter[str]:
    """What was noted from a byte of the file on, such as "PATCH volumemoves/status"."""
    with path.open("rb") as file:
        file.seek(offset)
        return Counter(file.read().decode().splitlines())


def what(method: str, path: str) -> str:
    """A request without the names in it."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if not parts:
        return f"{method} {path}"  # which kinds there are
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource, name, *more = (*parts, "")
    verb = "LIST" if method == "GET" and not name else method
    return " ".join((verb, "/".join((resource, *filter(None, more)))))


def main() -> None:
    """Run it."""
    notes = Path(os.environ[REQUESTS]).open("ab", buffering=0)  # noqa: SIM115 -- for its life
    send = Transport.exchange

    async def exchange(
        self: Transport, attempt: Any, method: str, path: str, **options: Any
    ) -> tuple[bytes, Mapping[str, str]]:
        try:
            return await send(self, attempt, method, path, **options)
        finally:
            notes.write(f"{what(method, path)}\n".encode())

    cast("Any", Transport).exchange = exchange
    cli.main()


if __name__ == "__main__":
    main()

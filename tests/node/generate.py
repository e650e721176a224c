"""The generated halves of ``provisioner/node/csi/wire`` and of the tests' own ``.proto``.

::

    .venv/bin/python -m tests.node.generate     # writes them anew
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
PROTOS = tuple(
    path.relative_to(ROOT)
    for folder in ("provisioner/node/csi/wire", "tests/node")
    for path in sorted((ROOT / folder).glob("*.proto"))
)


def generate(into: Path) -> list[Path]:
    """Write what belongs to each ``.proto`` below a folder; gives the paths relative to it."""
    known = files("grpc_tools") / "_proto"  # google/protobuf/*.proto
    arguments = ["protoc", f"-I{ROOT}", f"-I{known}", f"--python_out={into}", f"--pyi_out={into}"]
    if protoc.main([*arguments, *(str(path) for path in PROTOS)]) != 0:
        raise SystemExit("protoc has refused a .proto; it says why above")
    return [
        path.with_name(f"{path.stem}_pb2{suffix}") for path in PROTOS for suffix in (".py", ".pyi")
    ]


if __name__ == "__main__":
    sys.stdout.write("\n".join(str(path) for path in generate(ROOT)) + "\n")

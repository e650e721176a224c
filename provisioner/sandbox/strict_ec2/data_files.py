"""botocore's and moto's data files, read in a fraction of the time.

moto 5.2.5 loads EC2's service model (4.3 MB) three times while it is imported, through three
sessions of boto3, and botocore decodes it into OrderedDicts each time. Here each file of botocore
is decoded once, and msgspec does it. Nobody changes what botocore has loaded: its own loaders keep
it, too, and hand it out again.
"""

import functools
import gzip
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from botocore.loaders import JSONFileLoader


def hasten() -> None:
    """Patch both in place; before moto is imported."""
    loader: Any = JSONFileLoader
    loader.load_file = _load_file
    moto: Any = import_module("moto.utilities.utils")
    moto.load_resource = _load_resource


def _load_file(_: JSONFileLoader, file_path: str) -> Any:
    """A file by its name without ``.json`` or ``.json.gz``; None if there is none."""
    return _decoded(file_path)


@functools.cache
def _decoded(file_path: str) -> Any:
    plain, packed = Path(f"{file_path}.json"), Path(f"{file_path}.json.gz")
    if plain.is_file():
        return msgspec.json.decode(plain.read_bytes())
    if packed.is_file():
        return msgspec.json.decode(gzip.decompress(packed.read_bytes()))
    return None


def _load_resource(resource: str) -> Any:
    """A file of moto's, by its path within moto; perhaps with ``.gz`` after it."""
    path = _MOTO / resource
    packed = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    return msgspec.json.decode(raw)


_MOTO = Path(str(import_module("moto").__file__)).parent

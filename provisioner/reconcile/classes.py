"""Classes as they are used: each revision is read once, however many claims name it."""

from provisioner.decide.storage_class import ReadClass, read
from provisioner.model.errors import Reason, StorageError
from provisioner.model.storage_class import StorageClass

_Revision = tuple[str, str]


class Classes:
    """What was read of each class, by name; the newest revision that was asked for is kept."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[_Revision, ReadClass | str]] = {}

    def read(self, storage_class: StorageClass) -> ReadClass:
        """The class as it is used.

        Raises:
            StorageError: INVALID_CLASS, with one sentence.
        """
        meta = storage_class.metadata
        revision = (meta.uid, meta.resource_version)
        known = self._read.get(storage_class.name)
        if known is None or known[0] != revision:
            known = (revision, _read(storage_class))
            self._read[storage_class.name] = known
        if isinstance(known[1], str):
            raise StorageError(Reason.INVALID_CLASS, f"class {storage_class.name!r}: {known[1]}")
        return known[1]

    def forget(self, name: str) -> None:
        """The class is gone."""
        self._read.pop(name, None)


def _read(storage_class: StorageClass) -> ReadClass | str:
    try:
        return read(storage_class)
    except ValueError as error:
        return str(error)

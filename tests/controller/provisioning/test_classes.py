"""Classes are read once a revision."""

import msgspec
import pytest

from provisioner.classes import storage_class_rules as rules
from provisioner.controller.provisioning import flow as module
from provisioner.controller.provisioning.flow import Classes
from provisioner.model.errors import Reason, StorageError
from provisioner.model.meta import ObjectMeta
from tests.builders import a_class


@pytest.fixture
def read_names(monkeypatch):
    """The names of the classes that were read, one for each time."""
    names: list[str] = []

    def read(storage_class):
        names.append(storage_class.name)
        return rules.read(storage_class)

    monkeypatch.setattr(module, "read", read)
    return names


def revision(storage_class, version, uid="class-1"):
    meta = ObjectMeta(name=storage_class.name, uid=uid, resource_version=version)
    return msgspec.structs.replace(storage_class, metadata=meta)


def test_however_many_claims_name_a_class_it_is_read_once(read_names):
    classes = Classes()

    found = [classes.read(revision(a_class(), "1")) for _ in range(100)]

    assert len({id(each) for each in found}) == 1
    assert read_names == ["fast"]


@pytest.mark.parametrize("change", [{"version": "2"}, {"version": "1", "uid": "class-2"}])
def test_another_revision_is_read_anew(read_names, change):
    classes = Classes()
    classes.read(revision(a_class(parameters={"type": "gp3"}), "1"))

    found = classes.read(revision(a_class(parameters={"type": "st1"}), **change))

    assert found.parameters.volume_type == "st1"
    assert read_names == ["fast", "fast"]


def test_a_refusal_is_remembered_too(read_names):
    classes, broken = Classes(), revision(a_class(parameters={"tpye": "gp3"}), "1")

    for _ in range(3):
        with pytest.raises(StorageError, match="class 'fast': unknown parameter 'tpye'") as refused:
            classes.read(broken)
        assert refused.value.reason is Reason.INVALID_CLASS

    assert read_names == ["fast"]
    assert classes.read(revision(a_class(), "2")).parameters.volume_type == "gp3"


def test_a_class_that_is_gone_is_forgotten(read_names):
    classes = Classes()
    classes.read(revision(a_class(), "1"))

    classes.forget("fast")
    classes.forget("never seen")
    classes.read(revision(a_class(), "1"))

    assert read_names == ["fast", "fast"]

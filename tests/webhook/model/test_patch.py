import msgspec
import pytest

from webhook.model.patch import PatchError, add, applied, remove


def test_a_member_is_removed_by_its_escaped_name():
    operation = remove("labels", "a/b~c")

    assert msgspec.to_builtins(operation) == {"op": "remove", "path": "/labels/a~1b~0c"}
    assert applied({"labels": {"a/b~c": "x", "d": "y"}}, [operation]) == {"labels": {"d": "y"}}


def test_an_added_null_is_sent():
    assert msgspec.to_builtins(add(None, "a")) == {"op": "add", "path": "/a", "value": None}


@pytest.mark.parametrize("document", [{}, {"labels": {}}, {"labels": ["d"]}, {"labels": None}])
def test_what_is_not_there_cannot_be_removed(document):
    with pytest.raises(PatchError):
        applied(document, [remove("labels", "d")])

"""An object whose ``managedFields`` are nested thousands of levels deep is read like any other."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.kube import wire
from provisioner.kube.failures import Attempt, read_status
from provisioner.kube.resources import CLAIMS
from provisioner.model import depth

ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
LEVELS = 9_900  # the API server reads 10,000


def claim(name: str, levels: int = LEVELS) -> str:
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    managed = f'[{{"fieldsV1":{fields}}}]'
    return f'{{"metadata":{{"name":"{name}","namespace":"team","managedFields":{managed}}}}}'


def test_a_list_with_a_deep_object_has_all_objects():
    reader = wire.PageReader(CLAIMS)
    page = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{claim("a")},{claim("b", 3)}]}}'
    reader.read(page.encode())
    assert reader.token == ""
    listing = reader.listing()
    assert [each.name for each in listing.items] == ["a", "b"]
    assert (listing.resource_version, listing.unreadable) == ("7", 0)


def test_a_watch_tells_of_a_deep_object():
    attempt = Attempt("watch", "persistentvolumeclaims")
    line = wire.decode_line(attempt, f'{{"type":"ADDED","object":{claim("a")}}}'.encode())
    assert wire.decode_object(CLAIMS, line.object).name == "a"


def test_a_deep_object_alone_is_read_and_is_no_status():
    data = claim("a").encode()
    assert wire.decode_object(CLAIMS, data).name == "a"
    assert wire.decode_metadata(data).key == "team/a"
    assert not wire.is_status(data)
    assert not read_status(data).kind


def test_what_stands_behind_the_depth_is_kept():
    deep = "[" * LEVELS + r'"]\"}"' + "]" * LEVELS
    found = depth.decode(ANY, f'{{"a":{deep},"b":[1,{{"c":"[\\\\"}}]}}'.encode())
    assert found["b"] == [1, {"c": "[\\"}]


@pytest.mark.parametrize("rest", ["", "]", '"', '"\\', '"\\"' * 9, "}" * 2000])
def test_what_is_deep_and_no_json_is_refused(rest):
    with pytest.raises(msgspec.DecodeError):
        depth.decode(ANY, f"{'[' * LEVELS}{rest}".encode())


nested = st.recursive(
    st.none() | st.text('a"\\[]{},:', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(nested)
def test_what_is_not_deep_stays_as_it_is(document):
    data = json.dumps(document).encode()
    assert depth._shallow(data) == data

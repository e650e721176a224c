import pytest

from provisioner.model.pod import InlineEbs
from webhook.model.pod import Pod, read


def test_a_pod_with_a_part_of_a_wrong_type_is_taken_for_an_empty_one():
    assert read({"metadata": {"name": "web"}, "spec": {"volumes": "none"}}) == Pod()


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({"name": "web-0", "generateName": "web-"}, 'pod "web-0"'),
        ({"generateName": "web-"}, 'pod "web-…"'),
        (None, 'pod "…"'),
    ],
)
def test_a_pod_is_called_by_its_name_or_its_beginning(metadata, title):
    assert read({"metadata": metadata}).title == title


@pytest.mark.parametrize(
    ("handle", "volume_id", "hint"),
    [
        ("vol-0a1", "vol-0a1", ""),
        ("aws:///vol-0a1", "vol-0a1", ""),
        ("aws://us-west-2-lax-1a/vol-0a1", "vol-0a1", "us-west-2-lax-1a"),
        ("aws://us-east-1a/snap-1", None, "us-east-1a"),
        ("placeholder", None, ""),
        (None, None, ""),
    ],
)
def test_an_inline_volume_is_read_in_each_of_its_forms(handle, volume_id, hint):
    inline = InlineEbs(handle=handle)

    assert (inline.volume_id, inline.zone_hint) == (volume_id, hint)

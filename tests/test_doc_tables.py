"""The generated tables in docs are those of the code."""

from pathlib import Path

import pytest

from tests import messages
from tests.doc_tables import COMMAND, TABLES, Table, found, marked, written


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_table_is_the_one_that_the_code_makes(table: Table):
    now = found(table, table.page.read_text())

    assert now == marked(table), f"write it again: .venv/bin/{COMMAND}"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_only_what_stands_between_the_markers_is_written(table: Table):
    old = f"<!-- {table.name}: STALE -->\nSTALE\n<!-- end of {table.name} -->"

    new = written(table, f"before\n\n{old}\n\nafter\n")

    assert new.startswith("before\n\n<!-- ")
    assert new.endswith(" -->\n\nafter\n")
    assert "STALE" not in new
    assert written(table, new) == new


def test_a_page_without_the_markers_is_not_written():
    with pytest.raises(SystemExit, match="has no marker"):
        written(TABLES[0], "nothing")


def said(source: str) -> list[tuple[str, str]]:
    return [(each.text, each.reason) for each in messages.read(source, Path("x.py"))]


@pytest.mark.parametrize(
    ("source", "text", "reason"),
    [
        ('Refuse(Reason.NO_ZONE, f"no zone for {claim.key}")', "no zone for {key}", "NoUsableZone"),
        ('record(claim, "ProvisioningFailed", "it did not work")', "it did not work", "Provi…"),
        ('say("it waits" + (f", for {s} s" if s else ""))', "it waits[, for {s} s]", ""),
        ("say(f\"no volume in {' or '.join(sorted(zones))}\")", "no volume in {zones}", ""),
        ('WHY = "the disk is full"\nsay(f"{path}: {WHY}")', "{path}: the disk is full", ""),
    ],
)
def test_a_message_is_read_with_its_placeholders_and_reason(source: str, text: str, reason: str):
    ((found, why),) = said(source)

    assert found == text
    assert why.startswith(reason.rstrip("…"))
    assert bool(why) == bool(reason)


def test_a_message_that_has_a_name_first_has_the_reason_of_its_use():
    source = """
def f(volume):
    message = f"EC2 has no volume {volume.name}"
    return Refuse(Reason.VOLUME_NOT_FOUND, message)
"""

    assert said(source) == [("EC2 has no volume {name}", "VolumeNotFound")]


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of a file."""',
        'def f():\n    """A docstring of a function."""',
        'log.warning("nothing of this is a message")',
        'option("--zone", help="the zone of the volume")',
        'KEY = "ebs-provisioner.io/format"',
        'say(f"{claim.namespace}/{claim.name} {claim.uid}")',
    ],
)
def test_what_is_said_of_no_object_is_no_message(source: str):
    assert said(source) == []


def test_every_story_has_messages_and_most_have_a_reason_nearby():
    found = messages.messages(("provisioner/controller", "webhook"))

    assert len(found) > 300
    assert {each.path.parts[2] for each in found if each.path.parts[1] == "controller"} >= {
        *("attaching", "claims", "deleting", "modifying", "placement", "provisioning"),
        "snapshotting",
    }
    assert sum(bool(each.reason) for each in found) > 80

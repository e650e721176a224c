"""Which moves copy files, and which of them are refused before anything is touched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.copying.plan_rules import NO_IMAGE, is_asked
from provisioner.model.document import Document
from tests.builders import ZONE
from tests.controller.moving.test_plan_rules import (
    DOCUMENT,
    THERE,
    a_move,
    a_storage_class,
    facts,
    planned,
    refused,
    requested,
)


def old(**spec: Any) -> Document:
    found = msgspec.convert(DOCUMENT, Document)
    return structs.replace(found, spec=found.spec | spec)


def csi(**fields: Any) -> Document:
    return old(csi=DOCUMENT["spec"]["csi"] | fields)


@pytest.mark.parametrize(
    ("to", "copies"),
    [
        ({"size": "3Gi"}, True),
        ({"size": "3500Mi"}, False),  # rounded up to the 4 GiB that there are
        ({"size": "4Gi"}, False),
        ({"size": "5Gi"}, False),
        ({"size": "much"}, False),
        ({"fsType": "xfs"}, True),
        ({"fsType": "ext4"}, False),
        ({"zone": THERE}, False),
    ],
)
def test_only_a_smaller_size_or_another_file_system_has_files_copied(to: Any, copies: Any):
    made = facts().volume
    assert made is not None
    assert is_asked(a_move(to=to), made, csi(fsType="ext4")) is copies


def test_a_smaller_volume_is_made_empty_in_the_same_zone_with_the_same_file_system():
    made = planned(facts(a_move(to={"size": "2Gi"}), document=csi(fsType="ext4")))

    request = requested(made)
    assert made.plan.copies_files
    assert (request.size_gib, request.zone, request.snapshot_id) == (2, ZONE, None)
    assert made.body["spec"]["csi"]["fsType"] == "ext4"
    assert any("files are copied by a pod in namespace shop" in note for note in made.plan.notes)


def test_a_new_file_system_is_named_and_told_nothing_that_only_the_old_one_knows():
    attributes = {"partition": "1", "ext4bigalloc": "true", "inodesize": "512", "note": "x"}
    document = csi(fsType="ext4", volumeAttributes=attributes)

    made = planned(facts(a_move(to={"fsType": "xfs"}), document=document))

    told = made.body["spec"]["csi"]
    assert told["fsType"] == "xfs"
    assert told["volumeAttributes"] == {"inodesize": "512", "note": "x"}
    assert (made.plan.source.fs_type, made.plan.target.fs_type) == ("ext4", "xfs")


def test_a_move_that_copies_nothing_leaves_the_file_system_out_of_its_plan():
    made = planned(facts())

    assert not made.plan.copies_files
    assert made.plan.target.fs_type == ""


@pytest.mark.parametrize(
    ("to", "changes", "said"),
    [
        ({"size": "2Gi", "zone": THERE}, {}, "do it in two moves"),
        ({"size": "2Gi"}, {"document": old(volumeMode="Block")}, "has no files to copy"),
        ({"size": "2Gi"}, {"document": csi(fsType="ntfs")}, "has the file system ntfs"),
        ({"size": "2Gi"}, {"pod_refused": NO_IMAGE}, "--copy-image"),
        (
            {"fsType": "ext4"},
            {"document": old(mountOptions=["noatime", "logbufs=8"])},
            "the mount option logbufs=8, which ext4 may not know",
        ),
    ],
)
def test_a_copy_that_cannot_be_made_is_refused_in_one_sentence(to: Any, changes: Any, said: str):
    message = refused(facts(a_move(to=to), **changes))

    assert said in message
    assert ". " not in message


def test_mount_options_of_a_class_that_is_named_are_not_those_of_the_old_file_system():
    move = a_move(to={"fsType": "ext4", "storageClassName": "other"})
    made = planned(
        facts(
            move,
            document=old(mountOptions=["logbufs=8"]),
            storage_class=a_storage_class("other"),
        )
    )

    assert made.plan.copies_files

"""A volume that a VolumeMove holds is attached to no node."""

from provisioner.controller.attaching import rules
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.names import HELD_FOR_MOVE
from tests.builders import (
    DRIVER,
    INSTANCE,
    VOLUME,
    a_csi_node,
    a_node,
    a_persistent_volume,
    an_attachment,
)


def target(**annotations: str) -> rules.Target | Refuse:
    return rules.target_to_attach(
        an_attachment(prepared=False),
        driver=DRIVER,
        persistent_volume=a_persistent_volume(annotations=annotations),
        node=a_node(),
        csi_node=a_csi_node(),
    )


def test_a_held_volume_is_not_attached_and_its_user_is_told_by_what_it_is_held():
    held = target(**{HELD_FOR_MOVE: "shop/to-b"})

    assert isinstance(held, Refuse)
    assert held.reason is Reason.VOLUME_IN_USE
    assert "VolumeMove shop/to-b" in held.message
    assert target() == rules.Target(VOLUME, INSTANCE)

"""Growing and changing a volume, as one plan: who is written to, in which order, how often."""

from __future__ import annotations

import pytest

from provisioner.model.modification import ModifyRequest
from tests.reconcile.modify_world import VOLUME, World, told


def test_a_file_system_is_left_to_kubelet_once_the_volume_has_grown(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.ask("20Gi")
        await world.run(30)
        assert world.claim.resize_status == "NodeResizePending"
        assert world.claim.capacity == "10Gi"
        assert world.persistent_volume.capacity == "20Gi"

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, None, None)]
    assert world.conditions == {"FileSystemResizePending"}
    assert world.reasons == ["Resizing", "FileSystemResizeRequired"]

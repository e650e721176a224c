"""What a volume's persistent volume says about erasing it."""

import pytest

from provisioner.model.errors import KubeError
from provisioner.model.names import FORMAT_CONSENT
from provisioner.node.formatting.format import Consents
from provisioner.node.formatting.rules import Consent

pytest_plugins = ("tests.node.kube_fixtures",)

VOLUME = "vol-0123456789abcdef0"
OTHER = "vol-0fedcba9876543210"


@pytest.fixture
def consents(kube):
    return Consents(kube)


async def test_the_annotation_is_read(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1", annotations={FORMAT_CONSENT: "yes"})

    assert await consents.of("vol-1") == Consent("pv-1", "yes")


async def test_without_an_annotation_there_is_no_value(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1")

    assert await consents.of("vol-1") == Consent("pv-1", None)


async def test_it_is_read_anew_each_time(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1", annotations={FORMAT_CONSENT: "yes"})
    await consents.of("vol-1")
    kube_server.has_volume("vol-1", "pv-1")

    assert (await consents.of("vol-1")).value is None


@pytest.mark.parametrize("has", ["nothing", "no persistent volume", "another volume", "inline"])
async def test_nobody_can_say_it_for_another_volume(consents, kube_server, has):
    if has != "nothing":
        kube_server.has_attachment("vol-1", "" if has == "inline" else "pv-1")
    if has == "another volume":
        kube_server.has_volume("vol-2", "pv-1", annotations={FORMAT_CONSENT: "yes"})

    assert await consents.of("vol-1") == Consent("", None)


@pytest.mark.parametrize("told_as", ["volumesAttached", "volumesInUse"])
async def test_a_persistent_volume_may_name_its_volume_as_the_in_tree_plugin_did(
    consents, kube_server, told_as
):
    """Then the attachment's name, too, comes of what the persistent volume says."""
    handle = f"aws://us-east-1a/{VOLUME}"
    kube_server.has_volume(handle, "pv-1", annotations={FORMAT_CONSENT: "yes"})
    kube_server.has_volume(f"aws://us-east-1a/{OTHER}", "pv-2", annotations={FORMAT_CONSENT: "no"})
    names = [f"kubernetes.io/csi/ebs.csi.aws.com^aws://us-east-1a/{n}" for n in (OTHER, VOLUME)]
    attached = [{"name": name, "devicePath": ""} for name in names]
    kube_server.has_node(status={told_as: attached if told_as == "volumesAttached" else names})

    assert await consents.of(VOLUME) == Consent("pv-1", "yes")


async def test_what_cannot_be_read_is_no_consent(consents, kube_server):
    kube_server.tokens.clear()

    with pytest.raises(KubeError):
        await consents.of("vol-1")

"""What a volume's persistent volume says about erasing it."""

import pytest

from provisioner.decide.format import CONSENT, Consent
from provisioner.model.errors import KubeError
from provisioner.node.consent import Consents

pytest_plugins = ("tests.node.kube_fixtures",)


@pytest.fixture
def consents(kube):
    return Consents(kube)


async def test_the_annotation_is_read(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1", annotations={CONSENT: "yes"})

    assert await consents.of("vol-1") == Consent("pv-1", "yes")


async def test_without_an_annotation_there_is_no_value(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1")

    assert await consents.of("vol-1") == Consent("pv-1", None)


async def test_it_is_read_anew_each_time(consents, kube_server):
    kube_server.has_volume("vol-1", "pv-1", annotations={CONSENT: "yes"})
    await consents.of("vol-1")
    kube_server.has_volume("vol-1", "pv-1")

    assert (await consents.of("vol-1")).value is None


@pytest.mark.parametrize("has", ["nothing", "no persistent volume", "another volume", "inline"])
async def test_nobody_can_say_it_for_another_volume(consents, kube_server, has):
    if has != "nothing":
        kube_server.has_attachment("vol-1", "" if has == "inline" else "pv-1")
    if has == "another volume":
        kube_server.has_volume("vol-2", "pv-1", annotations={CONSENT: "yes"})

    assert await consents.of("vol-1") == Consent("", None)


async def test_what_cannot_be_read_is_no_consent(consents, kube_server):
    kube_server.tokens.clear()

    with pytest.raises(KubeError):
        await consents.of("vol-1")

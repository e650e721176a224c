"""Who may ask: anybody, the holder of a token, or of a certificate with a name."""

import pytest

from provisioner.model.errors import StorageError
from tests.webhook.front_world import BODY, Got, raw, read_answer, world
from webhook.certificates.tls import Contexts
from webhook.serving.server import problem_of
from webhook.settings import Callers

TOKEN = Callers(token="a.b.c")
AUTHORITY = Callers(authority="-----BEGIN", names=frozenset({"api-server"}))
CERTIFICATE = {
    "subject": ((("organizationName", "it"),), (("commonName", "api-server"),)),
    "subjectAltName": (("DNS", "kube-apiserver"), ("IP Address", "10.0.0.1")),
}


async def answered(callers: Callers, **headers: str) -> Got:
    async with world(callers=callers) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY, **headers))
        return await read_answer(reader)


async def test_who_sends_the_token_is_answered():
    assert (await answered(TOKEN, authorization="Bearer a.b.c")).status == 200


@pytest.mark.parametrize("said", ["", "Bearer", "Bearer a.b", "Bearer a.b.cd", "Basic a.b.c", "é"])
async def test_who_does_not_send_the_token_is_told_so(said: str):
    answer = await answered(TOKEN, authorization=said)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.body == b"a valid bearer token is required\n"


async def test_who_may_not_ask_does_not_learn_which_paths_there_are():
    async with world(callers=TOKEN) as it:
        assert (await it.post(BODY, path="/no/such"))[0] == 401


@pytest.mark.parametrize(
    ("names", "may_ask"),
    [
        ((), True),
        (("api-server",), True),
        (("kube-apiserver",), True),
        (("other", "api-server"), True),
        (("system:node:n1",), False),
        (("10.0.0.1",), False),
    ],
)
def test_of_certificates_the_name_decides(names: tuple[str, ...], *, may_ask: bool):
    callers = Callers(authority="some", names=frozenset(names))

    assert (problem_of(callers, CERTIFICATE, "") == "") is may_ask


def test_a_certificate_without_names_has_none_that_may_ask():
    assert problem_of(AUTHORITY, {}, "")
    assert problem_of(AUTHORITY, None, "")


def test_an_authority_that_is_no_certificate_is_one_sentence():
    with pytest.raises(StorageError, match="contains no certificate"):
        Contexts("no certificate")

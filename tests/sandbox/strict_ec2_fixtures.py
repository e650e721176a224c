"""Each rule of the strict EC2 is tested twice: it must hold there and be broken by plain moto.

A test that asks for ``lab`` runs against both; against plain moto it has to fail, or the rule is
none that we had to add (or moto has learnt it: then ours can go).
A test that asks for ``strict_lab`` is about behaviour that plain moto shares or does not know.
"""

import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from provisioner.sandbox.strict_ec2.client import StrictEc2, ask
from tests.sandbox.lab import Lab, client

_BROKEN = (
    AssertionError,
    ClientError,  # moto refuses what EC2 does
    ResponseParserError,  # HTML instead of XML
    pytest.fail.Exception,  # it does what EC2 refuses
)
"""How plain moto may break a rule; a mistake in the test itself, such as a KeyError, is none."""


@pytest.fixture(scope="session")
def strict_client(strict_ec2_server: StrictEc2) -> Any:
    # A page of types takes 6 s where four processes of the suite are busy.
    return client(strict_ec2_server.endpoint, read_timeout_s=120.0)


@pytest.fixture(scope="session")
def plain_moto() -> Iterator[str]:
    """Endpoint of an unpatched moto_server."""
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
    ) as process:
        assert process.stderr is not None
        endpoint = next(
            found[0] for line in process.stderr if (found := re.search(r"http://[\d.:]+", line))
        )
        # Its log of requests must not fill the pipe.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            yield endpoint
        finally:
            process.kill()
            drain.wait()


@pytest.fixture(scope="session")
def plain_client(plain_moto: str) -> Any:
    # Its first call has the server import EC2: more than 20 s where four processes begin.
    return client(plain_moto, read_timeout_s=120.0)


@pytest.fixture
def strict_lab(strict_ec2: StrictEc2, strict_client: Any) -> Lab:
    return Lab(strict_client, strict_ec2.control)


@pytest.fixture(params=["strict", "plain"])
def lab(request: pytest.FixtureRequest) -> Lab:
    if request.param == "strict":
        found: Lab = request.getfixturevalue("strict_lab")
        return found
    endpoint = request.getfixturevalue("plain_moto")
    ask(endpoint, "/moto-api/reset", b"")
    return Lab(request.getfixturevalue("plain_client"), lambda **_: None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Turn the verdict round for plain moto."""
    callspec = getattr(pyfuncitem, "callspec", None)
    if callspec is None or callspec.params.get("lab") != "plain":
        return (yield)
    try:
        yield
    except _BROKEN:
        return True
    raise AssertionError("plain moto keeps this rule too: the test shows nothing of ours")

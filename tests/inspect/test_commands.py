"""What all commands share, run as their users run them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.inspect.command_line import result_of
from provisioner.inspect.commands import ebs
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests.test_cli import KUBECONFIG

STARTS = {
    "kubectl-ebs": "from provisioner.inspect.commands import main; main()",
    "ebs-provisioner ebs": "from provisioner.cli import main; main()",
}


def test_no_command_is_described_by_half_a_sentence():
    told = CliRunner().invoke(ebs, ["--help"], terminal_width=80).output

    assert "  doctor " in told
    assert "..." not in told.partition("Commands:")[2]


def test_a_command_that_reads_much_seldom_looks_for_cycles():
    async def every() -> int:
        return gc.get_threshold()[0]

    before = gc.get_threshold()
    gc.set_threshold(700)
    try:
        assert result_of(every()) > 10 * 700
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("program", STARTS)
def test_what_is_logged_does_not_spoil_the_json(
    program: str, strict_ec2: StrictEc2, tmp_path: Path
):
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    strict_ec2.control(throttle={"DescribeVolumes": [1, 10]})
    environment = {"AWS_ENDPOINT_URL": strict_ec2.endpoint, "KUBECONFIG": "kubeconfig"}
    words = [*program.split()[1:], "quota", "-o", "json", "--region", "us-east-1"]

    done = subprocess.run(
        [sys.executable, "-c", STARTS[program], *words],
        cwd=tmp_path,
        env=environment | CREDENTIALS,
        capture_output=True,
        text=True,
        check=False,
    )
    throttled = strict_ec2.throttled()["DescribeVolumes"]
    strict_ec2.control(throttle="none")

    assert throttled > 0
    assert (done.returncode, done.stderr) == (0, "")
    assert {each["of"] for each in json.loads(done.stdout)} >= {"gp2", "gp3"}

"""The command line: a mistake is one line and a non-zero exit, told before anything is started."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner import cli, logs
from provisioner.controller import app
from provisioner.controller.shared.settings import Settings, Sweep
from provisioner.ec2.limiter import Rate, documented
from provisioner.ec2.rate_option import parse_rates
from provisioner.model import tags

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith(("EBS_PROVISIONER_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ebs-provisioner", *options])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code is None or isinstance(caught.value.code, int)
    return caught.value.code or 0


def started(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process and a home of its own, with a configuration for an API server that is away."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    command = [sys.executable, "-m", "provisioner.cli", "controller", *options]
    home = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    environment = {**os.environ, **home, "AWS_CONFIG_FILE": str(tmp_path / "none")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--cluster-id", "a b/c*", "characters other than"),
        ("--cluster-id", "line\nbreak", "characters other than"),
        ("--cluster-id", "x" * 107, "107 characters"),
        ("--driver-name", "", "is not a DNS name"),
        ("--driver-name", "EBS.csi.aws.com", "is not a DNS name"),
        ("--driver-name", "ebs..com", "is not a DNS name"),
        ("--driver-name", "-ebs", "is not a DNS name"),
        ("--driver-name", "ebs\n", "is not a DNS name"),
        ("--driver-name", "e" * 64, "is not a DNS name"),
        ("--default-fstype", "zfs", "'zfs' is not one of 'ext4'"),
        ("--default-fstype", "", "is not one of 'ext4'"),
        ("--leader-election-namespace", "", "is not a DNS name"),
        ("--extra-tags", "team", "not of the form key=value"),
        ("--extra-tags", "kubernetes.io/cluster/mine=owned", "is reserved"),
        ("--extra-tags", "a=1,a=2", "given twice"),
        ("--ec2-rate", "CreateVolume=fast", "CreateVolume"),
        ("--ec2-rate", "CreateVolume=0:5", "CreateVolume"),
        ("--orphan-sweep", "perhaps", "is not one of"),
        ("--orphan-sweep-interval", "0s", "is not a duration"),
        ("--orphan-sweep-interval", "-5m", "is not a duration"),
        ("--orphan-min-age", "soon", "is not a duration"),
        ("--orphan-min-age", "nan", "is not a duration"),
        ("--orphan-min-age", "inf", "is not a duration"),
        ("--orphan-min-age", "", "is not a duration"),
        ("--log-format", "xml", "is not one of"),
        ("--log-level", "loud", "is not one of"),
    ],
)
def test_an_invalid_value_is_one_line_that_names_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, option: str, value: str, says: str
) -> None:
    code = run(monkeypatch, "controller", f"{option}={value}")

    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    assert told.err.startswith("ebs-provisioner: ")
    assert option in told.err
    assert says in told.err
    assert told.err.count("\n") == 1


def settings_of(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Settings, str, str]:
    """What the controller would be started with; then how it would log."""
    told: list[Any] = []

    async def start(settings: Settings) -> None:
        told.append(settings)

    monkeypatch.setattr(app, "run", start)
    monkeypatch.setattr(logs, "configure", lambda *how: told.extend(how))
    assert run(monkeypatch, "controller", *options) == 0
    log_format, level, settings = told
    return settings, log_format, level


def test_without_options_the_defaults_of_the_settings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(monkeypatch) == (Settings(), "text", "info")


TWINS: list[tuple[str, str, Any]] = [
    ("--kubeconfig", "/somewhere", {"kubeconfig": "/somewhere"}),
    ("--driver-name", "my-ebs.example.com", {"driver": "my-ebs.example.com"}),
    ("--cluster-id", "prod", {"cluster_id": "prod"}),
    ("--region", "eu-central-1", {"region": "eu-central-1"}),
    (
        "--extra-tags",
        "team=a,cost=b",
        {"extra_tags": tags.parse_extra("team=a,cost=b")},
    ),
    ("--reconcile-extra-tags", "true", {"reconcile_extra_tags": True}),
    ("--default-fstype", "xfs", {"default_file_system": "xfs"}),
    ("--modify-annotations", "true", {"modify_annotations": True}),
    ("--leader-elect", "false", {"leader_elect": False}),
    ("--leader-election-namespace", "storage", {"lease_namespace": "storage"}),
    ("--ec2-rate", "CreateVolume=9:3,*=x2", {"ec2_rates": "CreateVolume=9:3,*=x2"}),
    ("--metrics-address", ":2", {"metrics_address": ":2"}),
    ("--orphan-sweep", "report", {"orphan_sweep": Sweep.REPORT}),
    ("--orphan-sweep-interval", "90s", {"orphan_sweep_interval_s": 90.0}),
    ("--orphan-min-age", "1h", {"orphan_min_age_s": 3600.0}),
    ("--release-dead-nodes", "true", {"release_dead_nodes": True}),
    ("--initialize-nodes", "true", {"initialize_nodes": True}),
    ("--volume-costs", "true", {"volume_costs": True}),
    ("--volume-moves", "true", {"volume_moves": True}),
    ("--copy-image", "registry/ebs:1", {"copy_image": "registry/ebs:1"}),
]
# Options that do nothing without another one.
NEEDED: dict[str, tuple[str, dict[str, Any]]] = {
    "--initialize-nodes": ("--cluster-id=prod", {"cluster_id": "prod"}),
}


FLAGS = {
    "--initialize-nodes": "--initialize-nodes",
    "--leader-elect": "--no-leader-elect",
    "--modify-annotations": "--modify-annotations",
    "--reconcile-extra-tags": "--reconcile-extra-tags",
    "--release-dead-nodes": "--release-dead-nodes",
    "--volume-costs": "--volume-costs",
    "--volume-moves": "--volume-moves",
}


@pytest.mark.parametrize(("option", "value", "fields"), TWINS)
def test_an_option_and_its_twin_in_the_environment_set_the_same(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, fields: dict[str, Any]
) -> None:
    needed, more = NEEDED.get(option, ("--log-level=info", {}))
    wanted = (dataclasses.replace(Settings(), **fields, **more), "text", "info")
    assert settings_of(monkeypatch, FLAGS.get(option, f"{option}={value}"), needed) == wanted

    monkeypatch.setenv(twin_of(option), value)
    assert settings_of(monkeypatch, needed) == wanted


def test_nodes_are_initialized_only_where_their_instances_can_be_told_from_others(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, "controller", "--initialize-nodes") == 2

    told = capsys.readouterr().err
    assert "--initialize-nodes needs --cluster-id" in told
    assert told.count("\n") == 1


def test_logging_has_twins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (Settings(), "json", "debug")
    assert settings_of(monkeypatch, "--log-format=json", "--log-level=debug") == wanted

    monkeypatch.setenv(twin_of("--log-format"), "json")
    monkeypatch.setenv(twin_of("--log-level"), "debug")
    assert settings_of(monkeypatch) == wanted


def twin_of(option: str) -> str:
    return f"EBS_PROVISIONER_CONTROLLER_{option.removeprefix('--').upper().replace('-', '_')}"


def test_no_option_is_left_out_above() -> None:
    named = {option for option, _, _ in TWINS} | {"--log-format", "--log-level"}

    assert {each.opts[0] for each in cli.controller.params} == named


def test_a_quota_may_be_raised_in_several_options(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _, _ = settings_of(
        monkeypatch, "--ec2-rate=CreateVolume=300:12", "--ec2-rate=AttachVolume=90:9,*=x2"
    )

    rates = parse_rates(settings.ec2_rates)
    assert rates.of("CreateVolume") == Rate(300, 12)
    assert rates.of("AttachVolume") == Rate(90, 9)
    assert rates.of("DetachVolume") == documented("DetachVolume").times(2)


def test_two_quotas_for_one_action_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, "controller", "--ec2-rate=*=x2", "--ec2-rate=*=x3") == 2
    assert "* is given twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("--driver-name", "ebs.csi.aws.com"),
        ("--default-fstype", "ext4"),
        ("--leader-election-namespace", "kube-system"),
        ("--orphan-sweep", "delete"),
        ("--orphan-sweep-interval", "5m"),
        ("--orphan-min-age", "10m"),
        ("--log-format", "text"),
        ("--log-level", "info"),
    ],
)
def test_help_names_the_default_of_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, option: str, default: str
) -> None:
    assert run(monkeypatch, "controller", "--help") == 0

    entries = re.split(r"\n  (?=--)", capsys.readouterr().out)
    [entry] = [each for each in entries if each.startswith(f"{option} ")]
    assert f"[default: {default}]" in " ".join(entry.split())


def test_help_names_the_twins_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, "controller", "--help") == 0

    assert twin_of("--cluster-id") in capsys.readouterr().out


def test_the_environment_is_held_to_the_same_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("EBS_PROVISIONER_CONTROLLER_CLUSTER_ID", "what?")

    assert run(monkeypatch, "controller") == 2
    assert "'what?' has characters other than" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("controller", "--colour"), ("conduct",)])
def test_an_unknown_option_or_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, options: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *options) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", [(), ("controller",)])
def test_help_needs_nothing_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, command: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *command, "--help") == 0
    assert "[OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0)],
)
def test_durations_are_seconds_or_have_a_unit(text: str, seconds: float) -> None:
    context = cli.controller.make_context("controller", ["--orphan-min-age", text])

    assert context.params["orphan_min_age"] == seconds


def test_what_is_valid_is_taken_as_it_is() -> None:
    given = {
        "cluster_id": "prod_1.eu:a/b=c+d@e-" + "x" * 86,
        "driver_name": "my-ebs.csi.example.com",
        "default_fstype": "xfs",
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]

    context = cli.controller.make_context("controller", options)

    assert {name: context.params[name] for name in given} == given


def test_no_cluster_id_is_fine() -> None:
    assert cli.controller.make_context("controller", ["--cluster-id="]).params["cluster_id"] == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kubeconfig={here}/missing", "--region=us-east-1"], "missing"),
        (["--region=us-east-1"], "kubeconfig"),
        (
            ["--kubeconfig={here}/kubeconfig", "--region=us-east-1", "--metrics-address=nowhere"],
            "nowhere",
        ),
    ],
    ids=["no such kubeconfig", "no kubeconfig", "no address"],
)
def test_what_is_missing_at_the_start_is_one_line(
    tmp_path: Path, options: list[str], says: str
) -> None:
    done = started(tmp_path, *(option.replace("{here}", str(tmp_path)) for option in options))

    assert done.returncode == 1
    assert done.stderr.startswith("ebs-provisioner: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_volumes_of_an_api_server_that_is_away_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    code = run(monkeypatch, "ebs", "volumes", "--kubeconfig", str(tmp_path / "kubeconfig"))

    told = capsys.readouterr()
    assert (code, told.out) == (1, "")
    assert told.err.startswith("ebs-provisioner: cannot list persistentvolumes: ")
    assert told.err.count("\n") == 1


def test_volumes_of_an_impossible_driver_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    code = run(monkeypatch, "ebs", "volumes", "--driver-name", "EBS")

    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert "--driver-name" in told.err
    assert told.err.count("\n") == 1

"""The command line of the webhook: a mistake is one line and a non-zero exit."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from webhook import app, cli
from webhook.settings import Callers, Settings

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""
Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def a_clean_environment(monkeypatch: Patch) -> None:
    for name in [each for each in os.environ if each.startswith(("EBS_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def run(monkeypatch: Patch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ebs-webhook", *options])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    code = caught.value.code
    assert code is None or isinstance(code, int)  # None: the command has just returned
    return code or 0


def settings_of(monkeypatch: Patch, *options: str) -> Settings:
    """What the process would be started with."""
    given: list[Settings] = []

    def started(settings: Settings) -> None:
        given.append(settings)

    monkeypatch.setattr(app, "run", started)
    assert run(monkeypatch, "serve", *options) == 0
    return given[0]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--listen", "8443", "is not an address"),
        ("--listen", "host:port", "is not an address"),
        ("--listen", ":65536", "is not an address"),
        ("--listen", ":-1", "is not an address"),
        ("--listen", "a b:1", "is not an address"),
        ("--listen", "https://host:1", "is not an address"),
        ("--listen", "", "is not an address"),
        ("--metrics-address", "nowhere", "is not an address"),
        ("--namespace", "Not-A-Name", "is not a DNS name"),
        ("--service", "", "is not a DNS name"),
        ("--driver-name", "ebs..com", "is not a DNS name"),
        ("--tls-secret", "a/b", "is not a DNS name"),
        ("--tls-manage", "perhaps", "is not a valid boolean"),
        ("--tls-name", "a,fe80::1%eth0", "'fe80::1%eth0' is no host name or IP address"),
        ("--tls-name", "bücher.example", "'bücher.example' is no host name"),
        ("--tls-name", "host:8443", "'host:8443' is no host name"),
        ("--tls-name", "[::1]", "'[::1]' is no host name"),
        ("--tls-name", "a..b", "'a..b' is no host name"),
        ("--tls-name", ".".join(["a" * 63] * 4), "is no host name"),
        ("--ec2-rate", "DescribeVolumes=fast", "DescribeVolumes"),
        ("--log-format", "xml", "is not one of"),
        ("--log-level", "loud", "is not one of"),
    ],
)
def test_an_invalid_value_is_one_line_that_names_the_option(
    monkeypatch: Patch, capsys: Captured, option: str, value: str, says: str
) -> None:
    code = run(monkeypatch, "serve", f"{option}={value}")

    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    assert told.err.startswith("ebs-webhook: ")
    assert option in told.err
    assert says in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("options", [("serve", "--colour"), ("sieve",), ("serve", "extra")])
def test_an_unknown_option_or_command_is_one_line(
    monkeypatch: Patch, capsys: Captured, options: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *options) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", [(), ("serve",)])
def test_help_needs_nothing_and_succeeds(
    monkeypatch: Patch, capsys: Captured, command: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *command, "--help") == 0
    assert "[OPTIONS]" in capsys.readouterr().out


def test_without_options_it_is_the_manifests_webhook(monkeypatch: Patch) -> None:
    assert settings_of(monkeypatch) == Settings()


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("kubeconfig", "/somewhere", "kubeconfig", "/somewhere"),
        ("listen", ":1", "listen", ":1"),
        ("namespace", "here", "namespace", "here"),
        ("service", "mine", "service", "mine"),
        ("driver-name", "ebs.example.com", "driver", "ebs.example.com"),
        ("strict", "true", "strict", True),
        ("region", "eu-central-1", "region", "eu-central-1"),
        ("ec2-rate", "*=x2", "ec2_rates", "*=x2"),
        ("tls-secret", "theirs", "tls_secret", "theirs"),
        ("tls-name", "b, 127.0.0.1", "tls_names", ("127.0.0.1", "b")),
        ("tls-name", "2001:DB8::1, *.B.c, a_b", "tls_names", ("*.B.c", "2001:DB8::1", "a_b")),
        ("tls-manage", "false", "tls_manage", False),
        ("metrics-address", ":2", "metrics_address", ":2"),
    ],
)
def test_every_option_has_a_twin_in_the_environment(
    monkeypatch: Patch, option: str, value: str, field: str, expected: Any
) -> None:
    argument = "--strict" if option == "strict" else f"--{option}={value}"
    by_option = settings_of(monkeypatch, argument)
    monkeypatch.setenv(f"EBS_WEBHOOK_SERVE_{option.upper().replace('-', '_')}", value)
    by_environment = settings_of(monkeypatch)

    assert getattr(by_option, field) == expected
    assert by_environment == by_option


def test_the_environment_is_held_to_the_same_rules(monkeypatch: Patch, capsys: Captured) -> None:
    monkeypatch.setenv("EBS_WEBHOOK_SERVE_LISTEN", "nowhere")

    assert run(monkeypatch, "serve") == 2
    assert "'nowhere' is not an address" in capsys.readouterr().err


def test_an_empty_setting_in_the_environment_is_none(monkeypatch: Patch) -> None:
    for option in ("TLS_NAME", "LISTEN", "NAMESPACE", "REGION", "METRICS_ADDRESS"):
        monkeypatch.setenv(f"EBS_WEBHOOK_SERVE_{option}", "")

    assert settings_of(monkeypatch) == Settings()


@pytest.fixture
def a_home(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A kubeconfig of an API server that does not answer, and nothing else."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kubeconfig={here}/missing"], "missing"),
        (["--kubeconfig={here}/kubeconfig", "--metrics-address=192.0.2.1:1"], "192.0.2.1:1"),
        (["--kubeconfig={here}/kubeconfig", "--listen=192.0.2.1:1"], "192.0"),
    ],
    ids=["no such kubeconfig", "metrics elsewhere", "listen elsewhere"],
)
def test_what_is_missing_at_the_start_is_one_line(
    a_home: Path, monkeypatch: Patch, capsys: Captured, options: list[str], says: str
) -> None:
    given = (option.replace("{here}", str(a_home)) for option in options)

    code = run(monkeypatch, "serve", "--region=us-east-1", *given)

    told = capsys.readouterr().err
    assert code == 1
    assert told.startswith("ebs-webhook: ")
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("a_home")
def test_a_process_without_a_kubeconfig_says_so_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "webhook.cli", "serve", "--region=us-east-1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("ebs-webhook: ")
    assert "kubeconfig" in done.stderr
    assert done.stderr.count("\n") == 1


def test_by_default_anybody_may_ask(monkeypatch: Patch) -> None:
    assert settings_of(monkeypatch).callers == Callers()


def test_callers_are_told_by_files(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("an authority\n")
    (tmp_path / "token").write_text("a.b.c\n")
    options = ["--client-ca-file", str(tmp_path / "ca"), "--client-name", "one, two"]
    options += ["--caller-token-file", str(tmp_path / "token")]

    assert settings_of(monkeypatch, *options).callers == Callers(
        authority="an authority", names=frozenset({"one", "two"}), token="a.b.c"
    )


@pytest.mark.parametrize("option", ["--client-ca-file", "--caller-token-file"])
@pytest.mark.parametrize("content", [b" \n", b"\xff"])
def test_a_file_that_would_let_everybody_in_is_named(
    monkeypatch: Patch, capsys: Captured, tmp_path: Path, option: str, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    says = "cannot be read" if content.strip() else "is empty"

    assert run(monkeypatch, "serve", option, str(file)) != 0
    assert f"{option}: {file} {says}" in " ".join(capsys.readouterr().err.split())


def test_names_without_an_authority_are_a_mistake(monkeypatch: Patch, capsys: Captured) -> None:
    assert run(monkeypatch, "serve", "--client-name", "one") != 0
    assert "--client-name has no effect without --client-ca-file" in capsys.readouterr().err

"""The command line of ``ebs-webhook``: argv and environment are read here and nowhere else."""

import functools
import ipaddress
import re
from pathlib import Path
from typing import Any

import click

from provisioner import logs, options
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import StorageError
from webhook.settings import (
    LISTEN,
    NAME,
    NAMESPACE,
    TLS_SECRET,
    Callers,
    Settings,
)

_MOST_PORT = 65535
_MOST_NAME = 253
_LABEL = r"[a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")

_option = functools.partial(click.option, show_envvar=True)


class _Address(click.ParamType[str]):
    """``host:port``, or ``:port`` for all interfaces."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        host, separator, port = text.rpartition(":")
        decimal = port.isascii() and port.isdecimal()
        if not separator or not decimal or int(port) > _MOST_PORT or re.search(r"\s|/", host):
            self.fail(f"{text[:80]!r} is not an address; expected host:port or :port", param, ctx)
        return text


@click.group("ebs-webhook", context_settings={"auto_envvar_prefix": "EBS_WEBHOOK"})
@click.version_option(package_name="ebs-provisioner")
def commands() -> None:
    """Label EBS volumes with their zone on admission, and refuse pods across zones."""


@commands.command()
@_option(
    "--kubeconfig",
    help="Path of a kubeconfig.  [default: KUBECONFIG, or the pod's own cluster]",
)
@_option(
    "--listen",
    type=_Address(),
    default=LISTEN,
    show_default=True,
    help="host:port to serve HTTPS on.",
)
@_option(
    "--namespace",
    type=options.DnsName(),
    default=NAMESPACE,
    show_default=True,
    help="Namespace of the Secret, the lease and the Service.",
)
@_option(
    "--service",
    type=options.DnsName(),
    default=NAME,
    show_default=True,
    help="Name of the Service, for which certificates are issued.",
)
@_option(
    "--driver-name",
    type=options.DnsName(),
    default=EBS_DRIVER,
    show_default=True,
    help="Name of the CSI driver whose objects are reviewed, besides in-tree ones.",
)
@_option(
    "--strict/--no-strict",
    default=False,
    show_default=True,
    help="Refuse objects that cannot be checked, instead of allowing them with a warning.",
)
@_option(
    "--volume-moves/--no-volume-moves",
    default=False,
    show_default=True,
    help="Hold new pods back while a VolumeMove gives one of their claims another volume (alpha).",
)
@_option(
    "--region",
    help="AWS region.  [default: AWS_REGION, or that of the Nodes, or of this instance]",
)
@_option(
    "--ec2-rate",
    type=options.Rates(),
    multiple=True,
    callback=options.all_rates,
    help="EC2 quotas that AWS has raised for you, such as DescribeVolumes=200:50.",
)
@_option(
    "--tls-secret",
    type=options.DnsName(),
    default=TLS_SECRET,
    show_default=True,
    help="Name of the Secret that holds the certificates.",
)
@_option(
    "--tls-name",
    default="",
    help="More hosts and addresses for the certificate, separated by commas; needed where webhook"
    " configurations have a url instead of the Service.",
)
@_option(
    "--tls-manage",
    type=bool,
    default=True,
    show_default=True,
    help="false: only read the Secret, and leave it and every caBundle to others.",
)
@_option(
    "--client-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA certificates (PEM); only callers with a client certificate of these are answered.",
)
@_option(
    "--client-name",
    default="",
    help="With --client-ca-file: common names or DNS names that are answered, separated by commas."
    "  [default: all]",
)
@_option(
    "--caller-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only callers that send the bearer token in this file are answered.",
)
@_option(
    "--metrics-address",
    type=_Address(),
    help="host:port to serve /metrics, /healthz and /readyz on; off by default.",
)
@_option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def serve(
    *,
    driver_name: str,
    ec2_rate: str,
    tls_name: str,
    client_ca_file: Path | None,
    client_name: str,
    caller_token_file: Path | None,
    metrics_address: str | None,
    log_format: str,
    log_level: str,
    **same: Any,
) -> None:
    """Answer admission reviews of the API server (run as a Deployment)."""
    # ``same``: the options that Settings has under the same name, and takes as they are.
    if client_name and client_ca_file is None:
        raise click.UsageError("--client-name has no effect without --client-ca-file")
    logs.configure(log_format, log_level)
    settings = Settings(
        driver=driver_name,
        ec2_rates=ec2_rate,
        tls_names=_hosts(tls_name),
        callers=Callers(
            authority=_text(client_ca_file, "--client-ca-file"),
            names=_separated(client_name),
            token=_text(caller_token_file, "--caller-token-file"),
        ),
        metrics_address=metrics_address or "",
        **same,
    )
    from webhook import app  # noqa: PLC0415 -- boto3 and kubernetes cost half a second

    try:
        app.run(settings)
    except StorageError as error:
        raise click.ClickException(error.message) from error


def _separated(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",")) - {""}


def _hosts(text: str) -> tuple[str, ...]:
    """What certificates can have; with another name none is ever made that has it."""
    names = sorted(_separated(text))
    for each in names:
        if not _is_address(each) and not (_HOST.fullmatch(each) and len(each) <= _MOST_NAME):
            raise click.UsageError(
                f"--tls-name: {each[:80]!r} is no host name or IP address that a certificate can "
                "have; write an address without zone, port or brackets, and a name in letters of "
                "ASCII (others as xn--…)"
            )
    return tuple(names)


def _is_address(text: str) -> bool:
    try:
        return not getattr(ipaddress.ip_address(text), "scope_id", None)
    except ValueError:
        return False


def _text(path: Path | None, option: str) -> str:
    """The content of a file; an empty one would let everybody in."""
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option}: {path} cannot be read as ASCII: {error}") from error
    if not text:
        raise click.UsageError(f"{option}: {path} is empty")
    return text


def main() -> None:
    """Run a command; a mistake is one line and a non-zero exit."""
    options.run(commands, NAME)


if __name__ == "__main__":
    main()

"""``ebs-provisioner node``: the node plugin and its preStop hook."""

from __future__ import annotations

import asyncio
import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner import logs, options
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import StorageError
from provisioner.node.instance.volume_limit_rules import LimitOptions
from provisioner.node.settings import KUBELET_DIR, NodeSettings

if TYPE_CHECKING:
    from provisioner.node.instance.kube import ApiServer


class _Folder(click.ParamType[Path]):
    """An absolute, normalised path; it need not exist."""

    name = "folder"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        text = str(value)
        if not text.isprintable() or not posixpath.isabs(text) or text.startswith("//"):
            self.fail(f"{text!r} is not an absolute path", param, ctx)
        if posixpath.normpath(text) not in {text, text.rstrip("/")} or not text.strip("/"):
            self.fail(f"{text!r} is / or is not normalised (it contains .. or . or //)", param, ctx)
        return Path(text)


@click.group(invoke_without_command=True)
@click.option(
    "--node-name", required=True, help="Name of this machine's Node object; in a pod spec.nodeName."
)
@click.option("--driver-name", type=options.DnsName(), default=EBS_DRIVER, show_default=True)
@click.option(
    "--kubelet-dir",
    type=_Folder(),
    default=str(KUBELET_DIR),
    show_default=True,
    help="The kubelet's --root-dir.",
)
@click.option("--metrics-address", default="", help="host:port of /metrics, /healthz, /readyz.")
@click.option(
    "--volume-attach-limit",
    type=click.IntRange(min=1),
    help="How many volumes this node takes, instead of EC2's limit for its instance type.",
)
@click.option(
    "--reserved-volume-attachments",
    type=click.IntRange(min=0),
    help="How many attachments to reserve for other volumes, instead of counting those.",
)
@click.option(
    "--legacy-xfs/--no-legacy-xfs",
    default=False,
    help="Make xfs without reflink, bigtime and inobtcount, for nodes with Linux before 5.10.",
)
@click.option("--kube-server", default="", help="URL of the API server; else the pod's own.")
@click.option("--token-file", type=click.Path(path_type=Path), help="With --kube-server.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="With --kube-server of https.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.pass_context
def node(
    ctx: click.Context,
    *,
    node_name: str,
    driver_name: str,
    kubelet_dir: Path,
    metrics_address: str,
    volume_attach_limit: int | None,
    reserved_volume_attachments: int | None,
    legacy_xfs: bool,
    kube_server: str,
    token_file: Path | None,
    ca_file: Path | None,
    log_format: str,
    log_level: str,
) -> None:
    """Format, mount and grow volumes on this machine for its kubelet (run as a DaemonSet).

    Each option can also be set in the environment, as EBS_PROVISIONER_NODE_ and its name in
    capitals: EBS_PROVISIONER_NODE_NODE_NAME.
    """
    logs.configure(log_format, log_level)
    ctx.obj = NodeSettings(
        node_name=node_name,
        server=_server(kube_server, token_file, ca_file),
        metadata_endpoint=os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", ""),
        asks_metadata=os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true",
        driver=driver_name,
        kubelet_dir=kubelet_dir,
        metrics_address=metrics_address,
        legacy_xfs=legacy_xfs,
        limits=_limits(volume_attach_limit, reserved_volume_attachments),
    )
    if ctx.invoked_subcommand is None:
        from provisioner.node import app  # noqa: PLC0415 -- grpc and aiohttp

        try:
            asyncio.run(app.run(ctx.obj))
        except StorageError as error:
            raise click.ClickException(error.message) from error


def _limits(attach_limit: int | None, reserved: int | None) -> LimitOptions:
    if attach_limit is not None and reserved is not None:
        raise click.UsageError(
            "--volume-attach-limit sets the number of volumes, so --reserved-volume-attachments "
            "has no effect; use one of them"
        )
    return LimitOptions(attach_limit, reserved)


def _server(url: str, token_file: Path | None, ca_file: Path | None) -> ApiServer:
    """The API server in the options, or the pod's own."""
    # aiohttp loads all CAs of the machine when it is imported, which takes 2 MiB. Nothing here uses
    # them: the API server's CA is given, and the metadata service has no TLS.
    os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull
    from provisioner.node.instance.kube import ApiServer  # noqa: PLC0415 -- after that

    if not url:
        try:
            return ApiServer.in_cluster(os.environ)
        except StorageError as error:
            raise click.ClickException(error.message) from error
    if token_file is None:
        raise click.UsageError("--kube-server needs --token-file")
    return ApiServer(url, token_file, ca_file)


@node.command()
@click.option(
    "--timeout",
    type=options.Duration(),
    default="30s",
    show_default=True,
    help="How long to wait; then it fails.",
)
@click.pass_obj
def drain(settings: NodeSettings, *, timeout: float) -> None:
    """Wait until a node that goes away has none of our volumes any more (the preStop hook).

    On a node that stays it returns at once.
    """
    from provisioner.node import app  # noqa: PLC0415 -- as above

    try:
        asyncio.run(app.drained(settings, timeout_s=timeout))
    except StorageError as error:
        raise click.ClickException(error.message) from error

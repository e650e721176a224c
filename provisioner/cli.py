"""The command line: argv and environment are read here and nowhere else."""

import asyncio
import os
from importlib import import_module
from importlib.util import find_spec

import click

from provisioner import logs, options
from provisioner.controller.shared.settings import Settings, Sweep
from provisioner.model import tags
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import StorageError
from provisioner.model.file_systems import DEFAULT_FILE_SYSTEM, FILE_SYSTEMS
from provisioner.model.sentences import printable
from provisioner.model.tag_template import TagTemplate

_CLUSTER_ID_NEEDED = (
    "--initialize-nodes needs --cluster-id: the controller accepts an instance as a node of this "
    "cluster only if it has the tag kubernetes.io/cluster/ID (owned or shared)"
)
_KUBECONFIG = "Path of a kubeconfig.  [default: KUBECONFIG, or the pod's own cluster]"
_REGION = "AWS region.  [default: AWS_REGION, or that of the Nodes, or of this instance]"


class _ExtraTags(click.ParamType[tuple[TagTemplate, ...]]):
    """key=value pairs, checked against EC2's rules."""

    name = "k=v,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[TagTemplate, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tags.parse_extra(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _ClusterId(click.ParamType[str]):
    """A cluster's id, which is written to tags and used to filter by them."""

    name = "id"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            tags.check_cluster_id(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


# Commands of extras: the module that an extra brings, and where the command is.
_EXTRAS = {
    "sandbox": ("moto", "provisioner.sandbox.commands"),
    "node": ("grpc", "provisioner.node.commands"),
}


# Commands that the others need not load, for a start that stays short.
_LATE = {
    "check-volume": "provisioner.copying.commands",
    "conformance": "provisioner.conformance.commands",
    "copy-files": "provisioner.copying.commands",
    "ebs": "provisioner.inspect.commands",
}


class _Commands(click.Group):
    """Imports some commands only when they are called, and those of extras if they are there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = [name for name, (brought, _) in _EXTRAS.items() if find_spec(brought) is not None]
        return sorted([*super().list_commands(ctx), *there, *_LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LATE:
            late: click.Command = getattr(
                import_module(_LATE[cmd_name]), cmd_name.replace("-", "_")
            )
            return late
        if cmd_name not in _EXTRAS:
            return super().get_command(ctx, cmd_name)
        brought, module = _EXTRAS[cmd_name]
        if find_spec(brought) is None:
            raise click.ClickException(
                f"the command {cmd_name} is not installed: run "
                f"pip install 'ebs-provisioner[{cmd_name}]'"
            )
        command: click.Command = getattr(import_module(module), cmd_name)
        return command


@click.group(
    "ebs-provisioner", cls=_Commands, context_settings={"auto_envvar_prefix": "EBS_PROVISIONER"}
)
@click.version_option(package_name="ebs-provisioner")
def commands() -> None:
    """Provision, attach and mount AWS EBS volumes for Kubernetes."""


@commands.command()
@click.option("--kubeconfig", help=_KUBECONFIG)
@click.option(
    "--driver-name",
    type=options.DnsName(),
    default=EBS_DRIVER,
    show_default=True,
    help="Name of the CSI driver whose objects are handled.",
)
@click.option(
    "--cluster-id",
    type=_ClusterId(),
    default="",
    help="Unique id of this cluster, written to its volumes as a tag; required for orphan sweeps.",
)
@click.option("--region", help=_REGION)
@click.option(
    "--extra-tags", type=_ExtraTags(), default="", help="Tags for every new volume and snapshot."
)
@click.option(
    "--reconcile-extra-tags/--no-reconcile-extra-tags",
    default=False,
    show_default=True,
    help="Add --extra-tags to existing volumes too.",
)
@click.option(
    "--default-fstype",
    type=click.Choice(FILE_SYSTEMS),
    default=DEFAULT_FILE_SYSTEM,
    show_default=True,
    help="File system for classes that name none.",
)
@click.option(
    "--modify-annotations/--no-modify-annotations",
    default=False,
    show_default=True,
    help="Honour annotations of claims that request another type, IOPS or throughput.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Work only while holding the leases.",
)
@click.option(
    "--leader-election-namespace",
    type=options.DnsName(),
    default="kube-system",
    show_default=True,
    help="Namespace in which the leases are kept.",
)
@click.option(
    "--ec2-rate",
    type=options.Rates(),
    multiple=True,
    callback=options.all_rates,
    help="EC2 quotas that AWS has raised for you, such as CreateVolume=200:10,*=x2.",
)
@click.option(
    "--metrics-address",
    default="",
    help="host:port to serve /metrics, /healthz and /readyz on; off by default.",
)
@click.option(
    "--orphan-sweep",
    type=click.Choice([s.value for s in Sweep]),
    default="delete",
    show_default=True,
    help="What to do with orphaned volumes.",
)
@click.option(
    "--orphan-sweep-interval",
    type=options.Duration(),
    default="5m",
    show_default=True,
    help="Time between two sweeps.",
)
@click.option(
    "--orphan-min-age",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="Age below which no volume is an orphan.",
)
@click.option(
    "--initialize-nodes/--no-initialize-nodes",
    default=False,
    show_default=True,
    help="Initialize nodes from EC2 where no cloud controller does; needs --cluster-id.",
)
@click.option(
    "--release-dead-nodes/--no-release-dead-nodes",
    default=False,
    show_default=True,
    help="Release volumes of nodes whose EC2 instances are terminated, without the usual wait.",
)
@click.option(
    "--volume-moves/--no-volume-moves",
    default=False,
    show_default=True,
    help="Alpha: give claims other volumes with the same data, as VolumeMoves ask.",
)
@click.option(
    "--copy-image",
    default="",
    help="Image of the pods that VolumeMoves run.  [default: that of this pod]",
)
@click.option(
    "--volume-costs/--no-volume-costs",
    default=False,
    show_default=True,
    help="Show what each volume costs a month as a metric.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def controller(
    *,
    kubeconfig: str | None,
    driver_name: str,
    cluster_id: str,
    region: str | None,
    extra_tags: tuple[TagTemplate, ...],
    reconcile_extra_tags: bool,
    default_fstype: str,
    modify_annotations: bool,
    leader_elect: bool,
    leader_election_namespace: str,
    ec2_rate: str,
    metrics_address: str,
    orphan_sweep: str,
    orphan_sweep_interval: float,
    orphan_min_age: float,
    initialize_nodes: bool,
    release_dead_nodes: bool,
    volume_moves: bool,
    copy_image: str,
    volume_costs: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run the controller, which creates, attaches, modifies, snapshots and deletes volumes.

    Each option can be set by an environment variable: EBS_PROVISIONER_CONTROLLER_ and the option's
    name in capitals, such as EBS_PROVISIONER_CONTROLLER_CLUSTER_ID.
    """
    if initialize_nodes and not cluster_id:
        raise click.UsageError(_CLUSTER_ID_NEEDED)
    logs.configure(log_format, log_level)
    settings = Settings(
        kubeconfig=kubeconfig,
        driver=driver_name,
        cluster_id=cluster_id,
        region=region,
        extra_tags=extra_tags,
        reconcile_extra_tags=reconcile_extra_tags,
        default_file_system=default_fstype,
        modify_annotations=modify_annotations,
        leader_elect=leader_elect,
        lease_namespace=leader_election_namespace,
        ec2_rates=ec2_rate,
        metrics_address=metrics_address,
        orphan_sweep=Sweep(orphan_sweep),
        orphan_sweep_interval_s=orphan_sweep_interval,
        orphan_min_age_s=orphan_min_age,
        initialize_nodes=initialize_nodes,
        release_dead_nodes=release_dead_nodes,
        volume_moves=volume_moves,
        copy_image=copy_image,
        own_pod=_own_pod(),
        volume_costs=volume_costs,
    )
    _run(settings)


def _own_pod() -> str:
    """``namespace/name``, of which manifests/deployment.yaml tells us; "" outside of a pod."""
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    return f"{namespace}/{name}" if namespace and name else ""


def _run(settings: Settings) -> None:
    from provisioner.controller import app  # noqa: PLC0415 -- boto3 and kubernetes cost half a second

    try:
        asyncio.run(app.run(settings))
    except StorageError as error:
        raise click.ClickException(error.message) from error


@commands.group("class")
def classes() -> None:
    """Inspect StorageClasses."""


@classes.command("check")
@click.argument("what", metavar="FILE|NAME")
@click.option("--kubeconfig", help=_KUBECONFIG)
@click.option(
    "--driver-name",
    type=options.DnsName(),
    default=EBS_DRIVER,
    show_default=True,
    help="As the controller has it.",
)
@click.option(
    "--default-fstype",
    type=click.Choice(FILE_SYSTEMS),
    default=DEFAULT_FILE_SYSTEM,
    show_default=True,
    help="As the controller has it.",
)
@click.pass_context
def check(
    ctx: click.Context, *, what: str, kubeconfig: str | None, driver_name: str, default_fstype: str
) -> None:
    """Show what a StorageClass does and what is wrong with it.

    FILE is YAML or JSON; - reads standard input. An argument without a slash that does not end in
    .yaml, .yml or .json is the NAME of a class in the cluster. With a FILE, zones are compared with
    the cluster's nodes only if --kubeconfig is given.

    The exit status is 1 if this controller would refuse every claim of the class.
    """
    from provisioner.inspect.classes import check as class_check  # noqa: PLC0415 -- yaml, and with a cluster kubernetes

    question = class_check.Question(what, kubeconfig, driver_name, default_fstype)
    try:
        lines, sound = asyncio.run(class_check.answer(question))
    except StorageError as error:
        raise click.ClickException(printable(error.message)) from error
    except ValueError as error:
        raise click.ClickException(printable(str(error))) from error
    for line in lines:
        click.echo(printable(line))
    ctx.exit(0 if sound else 1)


def main() -> None:
    """Run a command; an error prints one line and exits with a non-zero status."""
    options.run(commands, "ebs-provisioner")


if __name__ == "__main__":
    main()

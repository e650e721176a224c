"""The command line: argv and environment are read here and nowhere else."""

import asyncio
from importlib import import_module
from importlib.util import find_spec

import click

from provisioner import logs, options
from provisioner.controller.shared.settings import Settings, Sweep
from provisioner.model import parameters, tags
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import StorageError
from provisioner.model.sentences import printable
from provisioner.model.tag_template import TagTemplate

_CLUSTER_ID_NEEDED = (
    "--initialize-nodes needs --cluster-id: only an instance with the tag kubernetes.io/cluster/ID "
    "(owned or shared) is taken for a node of this cluster"
)


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
    """Goes into tags, and into the filters by which they are found."""

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


class _Commands(click.Group):
    """Loads what an extra is needed for only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = [name for name, (brought, _) in _EXTRAS.items() if find_spec(brought) is not None]
        return sorted([*super().list_commands(ctx), *there])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _EXTRAS:
            return super().get_command(ctx, cmd_name)
        brought, module = _EXTRAS[cmd_name]
        if find_spec(brought) is None:
            raise click.ClickException(
                f"{cmd_name} needs an extra: pip install 'ebs-provisioner[{cmd_name}]'"
            )
        command: click.Command = getattr(import_module(module), cmd_name)
        return command


@click.group(
    "ebs-provisioner", cls=_Commands, context_settings={"auto_envvar_prefix": "EBS_PROVISIONER"}
)
@click.version_option(package_name="ebs-provisioner")
def commands() -> None:
    """EBS volumes for Kubernetes from one small process."""


@commands.command()
@click.option("--kubeconfig", help="Else KUBECONFIG, else the pod's own cluster.")
@click.option("--driver-name", type=options.DnsName(), default=EBS_DRIVER, show_default=True)
@click.option(
    "--cluster-id",
    type=_ClusterId(),
    default="",
    help="Tags volumes as this cluster's own; needed for the sweep for orphans.",
)
@click.option("--region", help="Else AWS_REGION, else that of the Nodes or of this instance.")
@click.option("--extra-tags", type=_ExtraTags(), default="", help="Written to every new volume.")
@click.option(
    "--reconcile-extra-tags/--no-reconcile-extra-tags",
    default=False,
    show_default=True,
    help="Bring --extra-tags to the volumes that are there, too.",
)
@click.option(
    "--default-fstype",
    type=click.Choice(parameters.FILE_SYSTEMS),
    default=parameters.DEFAULT_FILE_SYSTEM,
    show_default=True,
)
@click.option(
    "--modify-annotations/--no-modify-annotations",
    default=False,
    show_default=True,
    help="Heed annotations of claims that ask for another type, IOPS or throughput.",
)
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True)
@click.option(
    "--leader-election-namespace", type=options.DnsName(), default="kube-system", show_default=True
)
@click.option(
    "--ec2-rate",
    type=options.Rates(),
    multiple=True,
    callback=options.all_rates,
    help="Raised EC2 quotas, such as CreateVolume=200:10,*=x2.",
)
@click.option("--metrics-address", default="", help="host:port of /metrics, /healthz, /readyz.")
@click.option(
    "--orphan-sweep",
    type=click.Choice([s.value for s in Sweep]),
    default="delete",
    show_default=True,
)
@click.option("--orphan-sweep-interval", type=options.Duration(), default="5m", show_default=True)
@click.option("--orphan-min-age", type=options.Duration(), default="10m", show_default=True)
@click.option(
    "--initialize-nodes/--no-initialize-nodes",
    default=False,
    show_default=True,
    help="Label nodes from EC2 where no cloud controller does it; needs --cluster-id.",
)
@click.option(
    "--release-dead-nodes/--no-release-dead-nodes",
    default=False,
    show_default=True,
    help="Give up at once what is on nodes whose EC2 instances are terminated.",
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
    log_format: str,
    log_level: str,
) -> None:
    """Create, attach, detach and delete volumes (run as a Deployment).

    Each option has a twin in the environment: EBS_PROVISIONER_CONTROLLER_ and its name in capitals,
    such as EBS_PROVISIONER_CONTROLLER_CLUSTER_ID.
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
    )
    from provisioner.controller import app  # noqa: PLC0415 -- boto3 and kubernetes cost half a second

    try:
        asyncio.run(app.run(settings))
    except StorageError as error:
        raise click.ClickException(error.message) from error


@commands.group("class")
def classes() -> None:
    """Look at StorageClasses."""


@classes.command("check")
@click.argument("what", metavar="FILE|NAME")
@click.option("--kubeconfig", help="Else KUBECONFIG, else the pod's own cluster.")
@click.option("--driver-name", type=options.DnsName(), default=EBS_DRIVER, show_default=True)
@click.option(
    "--default-fstype",
    type=click.Choice(parameters.FILE_SYSTEMS),
    default=parameters.DEFAULT_FILE_SYSTEM,
    show_default=True,
    help="As the controller has it.",
)
@click.pass_context
def check(
    ctx: click.Context, *, what: str, kubeconfig: str | None, driver_name: str, default_fstype: str
) -> None:
    """Tell what a class will do, and what is wrong with it; exit 1 if this controller refuses it.

    FILE is YAML or JSON, - for standard input; what holds no slash and does not end in .yaml, .yml
    or .json is the NAME of a class in the cluster. With a FILE the cluster's nodes are looked at
    only if --kubeconfig is given.
    """
    from provisioner.inspect import class_check  # noqa: PLC0415 -- yaml, and with a cluster kubernetes

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


@commands.command()
@click.option("--namespace", "-n", default="", help="Of the claims; else all.")
@click.option("--kubeconfig", help="Else KUBECONFIG, else the pod's own cluster.")
@click.option("--driver-name", type=options.DnsName(), default=EBS_DRIVER, show_default=True)
@click.option("--region", help="Else AWS_REGION, else that of the Nodes or of this instance.")
def volumes(
    *, namespace: str, kubeconfig: str | None, driver_name: str, region: str | None
) -> None:
    """Show each volume as EC2 has it, what its claim wants, and when it may be modified next.

    SIZE is what there is, and after an arrow what is asked for. LEFT is how many modifications EC2
    would still take, and until when it stays at that. Nothing is changed, and it needs no
    controller: the API server and EC2 are read.
    """
    from provisioner.inspect import volumes as volumes_table  # noqa: PLC0415 -- boto3 and kubernetes, as above

    question = volumes_table.Question(namespace, kubeconfig, driver_name, region)
    try:
        lines = asyncio.run(volumes_table.answer(question))
    except StorageError as error:
        raise click.ClickException(printable(error.message)) from error
    for line in lines:
        click.echo(line)


def main() -> None:
    """Run a command; a mistake is one line and a non-zero exit."""
    options.run(commands, "ebs-provisioner")


if __name__ == "__main__":
    main()

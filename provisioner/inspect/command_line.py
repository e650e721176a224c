"""What all commands of ``kubectl ebs`` share: their options, how they read, and how they end."""

import asyncio
import functools
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import click

from provisioner import options
from provisioner.inspect.reading import gap_rules, kubeconfig
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.shell_words import cluster_flags
from provisioner.kube.client import KubeClient
from provisioner.kube.impersonation_rules import NOBODY_ELSE, Impersonation
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import StorageError
from provisioner.model.sentences import printable

_PIPE_CLOSED = 141  # 128 + SIGPIPE, what a shell shows of a program that a closed pipe ended
_INTERRUPTED = 130
# Lists of 10,000 objects are made and kept, and end with the command: looking them through for
# cycles after every 700th, as Python does, takes longer than reading them.
_GC_EVERY = 50_000
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """The cluster that a command is about.

    Attributes:
        kubeconfig: path of a kubeconfig; None in a pod.
        context: of the kubeconfig; None for its current one.
        namespace: as given; "" if none was.
        impersonate: as whom requests are sent, as given; the kubeconfig may say the same.
        given_kubeconfig: ``kubeconfig`` if it is by --kubeconfig; None if kubectl finds it, too.
    """

    kubeconfig: str | None
    context: str | None
    namespace: str
    impersonate: Impersonation = field(default=NOBODY_ELSE, kw_only=True)
    given_kubeconfig: str | None = field(default=None, kw_only=True)

    @property
    def default_namespace(self) -> str:
        """The namespace of a name without one: as given, or that of the kubeconfig's context."""
        return self.namespace or kubeconfig.namespace_of(self.kubeconfig, self.context)

    @property
    def flags(self) -> str:
        """Those that name the cluster in a command that is printed; "" if none was given."""
        return cluster_flags(self.context, self.given_kubeconfig)

    async def connect(self) -> KubeClient:
        """A client of its API server.

        Raises:
            StorageError: there is no usable kubeconfig; one clear line.
        """
        return await KubeClient.connect(
            kubeconfig=self.kubeconfig, context=self.context, impersonate=self.impersonate
        )


@dataclass(frozen=True, slots=True)
class Target(KubeTarget):
    """The cluster, the driver and the account that a command is about.

    Attributes:
        driver: name of the CSI driver.
        region: of EC2; None for AWS_REGION, or that of the Nodes or of this instance.
    """

    driver: str
    region: str | None


Function = Callable[..., Any]


def cluster_options(command: Function) -> Function:
    """Give a command the options that name a cluster, as one argument ``target``."""

    @click.option("--namespace", "-n", default="", help="Namespace of objects named without one.")
    @click.option(
        "--kubeconfig",
        "given_kubeconfig",
        help="Path of a kubeconfig.  [default: KUBECONFIG, ~/.kube/config, or the pod's cluster]",
    )
    @click.option("--context", help="Context of the kubeconfig.  [default: the current one]")
    @click.option("--as", "as_user", default="", metavar="USER", help="Ask as this user.")
    @click.option("--as-group", multiple=True, metavar="GROUP", help="As one of this group, too.")
    @click.option("--as-uid", default="", metavar="UID", help="As the user with this UID.")
    @functools.wraps(command)
    def with_cluster(
        *args: Any,
        namespace: str,
        given_kubeconfig: str | None,
        context: str | None,
        as_user: str,
        as_group: tuple[str, ...],
        as_uid: str,
        **kwargs: Any,
    ) -> Any:
        other = Impersonation(as_user, as_uid, as_group)
        target = _target(given_kubeconfig, context, namespace, other)
        return command(*args, target=target, **kwargs)

    return with_cluster


def target_so_far(params: Mapping[str, Any]) -> KubeTarget:
    """The cluster that a command line names which is still being typed; see ``cluster_options``."""
    other = Impersonation(
        params.get("as_user") or "", params.get("as_uid") or "", params.get("as_group") or ()
    )
    namespace = params.get("namespace") or ""
    return _target(params.get("given_kubeconfig"), params.get("context"), namespace, other)


def _target(
    given: str | None, context: str | None, namespace: str, other: Impersonation
) -> KubeTarget:
    path = kubeconfig.path_of_environment(given)
    return KubeTarget(path, context, namespace, impersonate=other, given_kubeconfig=given)


def target_options(command: Function) -> Function:
    """Give a command the options that say what it is about, as one argument ``target``."""

    @cluster_options
    @click.option(
        "--driver-name",
        type=options.DnsName(),
        default=EBS_DRIVER,
        show_default=True,
        help="As the controller has it.",
    )
    @click.option(
        "--region", help="AWS region.  [default: AWS_REGION, or that of the Nodes or this instance]"
    )
    @functools.wraps(command)
    def with_target(
        *args: Any, target: KubeTarget, driver_name: str, region: str | None, **kwargs: Any
    ) -> Any:
        full = Target(
            *(target.kubeconfig, target.context, target.namespace, driver_name, region),
            impersonate=target.impersonate,
            given_kubeconfig=target.given_kubeconfig,
        )
        return command(*args, target=full, **kwargs)

    return with_target


@dataclass(frozen=True, slots=True)
class Readers:
    """What a command reads from; either half may be unable to answer, and says so in its gaps."""

    cluster: Cluster
    cloud: Cloud

    def gap_lines(self) -> list[str]:
        """What could not be read, a line each."""
        return gap_rules.lines([*self.cluster.gaps, *self.cloud.gaps])


@asynccontextmanager
async def reading(target: Target) -> AsyncIterator[Readers]:
    """Connect to the API server and to EC2.

    Raises:
        StorageError: there is no usable kubeconfig; one clear line.
    """
    async with await target.connect() as client:
        cluster = Cluster(client)
        async with await Cloud.connect(cluster, target.region) as cloud:
            yield Readers(cluster, cloud)


def carry_out(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command and exit with the status that it returns; see ``result_of``."""
    sys.exit(result_of(work))


def result_of(work: Coroutine[Any, Any, R]) -> R:
    """Run a command, or a part of one before somebody is asked.

    An error is one line and status 1; Ctrl-C ends with 130, a reader that left with 141.
    """
    gc.set_threshold(_GC_EVERY)
    try:
        result = asyncio.run(work)
        sys.stdout.flush()
    except StorageError as error:
        raise click.ClickException(printable(error.message)) from error
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from error
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which would fail loudly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_PIPE_CLOSED)
    return result

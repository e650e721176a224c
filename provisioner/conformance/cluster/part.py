"""The part of a run that takes place in a cluster: connected, carried out, left."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.conformance.cluster.example import Example
from provisioner.conformance.cluster.hand import Hand
from provisioner.conformance.cluster.kinds import NAMESPACES
from provisioner.conformance.cluster.leaving import leave
from provisioner.conformance.cluster.steps import ALL, STEPS, Step
from provisioner.conformance.cluster.survey import Survey, survey, uid_of
from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.journal import InCluster, Journal
from provisioner.conformance.lab import Place
from provisioner.conformance.probe import CannotRunError, Finding, NotRun
from provisioner.conformance.sweep import Left, Patience
from provisioner.kube.client import KubeClient
from provisioner.model.errors import KubeError
from provisioner.model.names import CONFORMANCE_RUN

_USUAL = "~/.kube/config"


def kubeconfig_of(named: str | None) -> str:
    """The file as kubectl finds it; absolute, so that a journal can say it."""
    paths = (named or os.environ.get("KUBECONFIG") or _USUAL).split(os.pathsep)
    return os.pathsep.join(str(Path(each).expanduser().absolute()) for each in paths if each)


@asynccontextmanager
async def connected(asked: InCluster, run: str) -> AsyncIterator[Hand]:
    """A hand for a run in the cluster that was named.

    Raises:
        CannotRunError: it cannot be reached, or the context leads to another cluster by now.
    """
    try:
        client = await KubeClient.connect(kubeconfig=asked.kubeconfig, context=asked.context)
    except KubeError as failure:
        raise CannotRunError(f"the context {asked.context}: {failure.message}") from failure
    async with client:
        if asked.uid and asked.uid != await uid_of(client):
            raise CannotRunError(
                f"the context {asked.context} of {asked.kubeconfig} leads to another cluster than "
                "when the run began"
            )
        yield Hand(client, run)


async def look(hand: Hand, place: Place) -> Survey:
    """A look at the cluster; makes nothing.

    Raises:
        CannotRunError: the steps cannot be done there, or it is in another Region.
    """
    found = await survey(hand.client, hand.namespace)
    if found.zone not in place.zones:
        raise CannotRunError(
            f"the nodes of this cluster are in {found.zone or 'no zone'}, which is none of "
            f"{place.region}: name their Region with --region"
        )
    return found


async def runs_of(hand: Hand) -> set[str]:
    """The runs that have a namespace in the cluster.

    Raises:
        CannotRunError: it does not say.
    """
    try:
        every = (await hand.client.list(NAMESPACES)).items
    except KubeError as failure:
        raise CannotRunError(f"the cluster: {failure.message}") from failure
    return {run for each in every if (run := each.labels.get(CONFORMANCE_RUN))}


@dataclass(slots=True)
class Part:
    """The steps of one run in one cluster.

    Attributes:
        hand: in the cluster.
        seen: what was found there.
        asked: which image, and which file system.
        ec2: of the same account.
        journal: of the run.
        patience: with the controllers of the cluster.
        tell: hears of each finding as it comes.
        findings: of the steps that have ended.
    """

    hand: Hand
    seen: Survey
    asked: InCluster
    ec2: Ec2
    journal: Journal
    patience: Patience
    tell: Callable[[Step, Finding], None]
    findings: dict[str, Finding] = field(default_factory=dict)

    async def run(self) -> None:
        """Do all steps; a cluster in which they cannot be done is a finding of each."""
        await self.journal.started(ALL)
        await self.journal.entered()
        example = Example(
            self.hand,
            self.seen,
            self.ec2,
            self.asked.image,
            self.asked.file_system,
            self._heard,
        )
        try:
            await example.run()
        except CannotRunError as failure:
            for step in STEPS:
                await self._heard(step, NotRun(str(failure)), None)

    async def leave(self) -> Left:
        """Delete everything of this run in the cluster, if there can be something."""
        if not self.journal.story.in_cluster:
            return Left()
        left = await leave(self.hand, self.ec2, self.patience)
        if not left.why:
            await self.journal.left_cluster()
        return left

    async def _heard(self, step: Step, finding: Finding, seconds: float | None) -> None:
        await self.journal.found(step.name, finding, seconds)
        self.findings[step.name] = finding
        self.tell(step, finding)

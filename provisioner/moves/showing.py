"""Show plans before anybody is asked, with what only the cluster tells."""

from collections.abc import Sequence

from provisioner.inspect.reading import gap_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.shell_words import with_cluster
from provisioner.inspect.terminal import screen
from provisioner.kube.client import KubeClient
from provisioner.model.volume_move import VolumeMove
from provisioner.moves import estimate_words, plan_words
from provisioner.moves.owners import how_to_stop

_TITLE = "These claims get other volumes with the same data, all at the same time:"


async def show(client: KubeClient, planned: Sequence[VolumeMove], flags: str = "") -> None:
    """The plan of one claim, or of claims that are moved at the same time, by their dry runs.

    Args:
        client: of the cluster.
        planned: the dry runs.
        flags: that name the cluster to kubectl; "" for the current one.
    """
    cluster = Cluster(client)
    async with screen.progress("looking at what uses the claim"):
        stops = [
            with_cluster(stop, flags)
            for each in planned
            for stop in await how_to_stop(cluster, each)
        ]
    width, estimates = screen.text_width(), estimates_of([planned], 1)
    if len(planned) == 1:
        screen.show(plan_words.lines(planned[0], stops, width=width, estimates=estimates))
    else:
        once = list(dict.fromkeys(stops))
        lines = plan_words.lines_of_many(
            planned, once, title=_TITLE, width=width, estimates=estimates
        )
        screen.show(lines)
    screen.warn(gap_rules.lines(cluster.gaps))


def estimates_of(groups: Sequence[Sequence[VolumeMove]], at_once: int) -> list[str]:
    """Time and cost of dry runs; sentences."""
    every = [each for group in groups for each in group]
    times = estimate_words.times(groups, at_once)
    return [*times, *estimate_words.costs(every)]

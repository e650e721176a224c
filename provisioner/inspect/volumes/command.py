"""``kubectl ebs volumes``: what EC2 has, beside what the claims request."""

import click

from provisioner.inspect.command_line import Target, carry_out, target_options
from provisioner.inspect.terminal import screen
from provisioner.inspect.volumes.table import Question, answer


@click.command()
@target_options
def volumes(*, target: Target) -> None:
    """List volumes and what their claims request.

    Volumes are shown as EC2 has them. SIZE is the current size and, after an arrow, the requested
    one. LEFT is how many modifications EC2 still accepts, and until when. With --namespace, only
    volumes of its claims are shown. The command only reads the API server and EC2; it changes
    nothing and needs no running controller.
    """
    carry_out(_volumes(target))


async def _volumes(target: Target) -> int:
    question = Question(target.namespace, target.kubeconfig, target.driver, target.region)
    async with screen.progress("reading the volumes"):
        lines = await answer(question)
    screen.show(lines)
    return 0

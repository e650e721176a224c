"""``kubectl ebs``: what is wrong, why, what would help, and what it costs."""

from importlib import import_module

import click

from provisioner import logs, options

# Each command is a click command of this name in its story's ``command.py``, which is imported
# when it is called: boto3 and kubernetes cost half a second.
_COMMANDS = {
    "budget": "provisioner.inspect.volumes.command",
    "cost": "provisioner.inspect.cost.command",
    "df": "provisioner.inspect.df.command",
    "doctor": "provisioner.inspect.doctor.command",
    "explain": "provisioner.inspect.explain.command",
    "history": "provisioner.inspect.history.command",
    "move": "provisioner.moves.command",
    "orphans": "provisioner.inspect.orphans.command",
    "quota": "provisioner.inspect.quota.command",
    "volumes": "provisioner.inspect.volumes.command",
}


class _Commands(click.Group):
    """Imports a command only when it is called."""

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name]), cmd_name)
        return command


@click.group("ebs", cls=_Commands)
@click.version_option(package_name="ebs-provisioner")
def ebs() -> None:
    """Explain and inspect EBS volumes of a Kubernetes cluster.

    Something does not work: `kubectl ebs explain pod NAMESPACE/NAME`. To look at everything:
    `kubectl ebs doctor`.
    """
    # What the product logs goes to standard error: standard output may be read by a program.
    logs.configure("text", "warning")


def main() -> None:
    """Run as ``kubectl-ebs``, which kubectl runs for ``kubectl ebs``."""
    options.run(ebs, "kubectl-ebs")

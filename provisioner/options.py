"""What all command lines share: types of option values, and how an error is reported.

argv and the environment themselves are read by ``provisioner/cli.py`` and ``webhook/cli.py``.
"""

import re
import sys

import click

from provisioner.model.errors import StorageError


class Duration(click.ParamType[float]):
    """Seconds, or a number with s, m or h."""

    name = "duration"
    _UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012 -- never changed

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds."""
        text = str(value)
        number, unit = (text[:-1], text[-1]) if text[-1:] in self._UNITS else (text, "s")
        try:
            seconds = float(number) * self._UNITS[unit]
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{text!r} is not a duration such as 30s, 5m or 1h", param, ctx)
        return seconds


class DnsName(click.ParamType[str]):
    """A DNS-1123 subdomain of at most 63 characters, as Kubernetes requires of driver names."""

    name = "name"
    _LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
    _NAME = re.compile(rf"(?=.{{1,63}}\Z){_LABEL}(\.{_LABEL})*")

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The name as it is."""
        text = str(value)
        if not self._NAME.fullmatch(text):
            self.fail(
                f"{text[:80]!r} is not a DNS name: use lower-case letters, digits, dashes and "
                "dots, at most 63 characters",
                param,
                ctx,
            )
        return text


class Rates(click.ParamType[str]):
    """Rates of EC2 calls; checked here, so that a mistake is reported before anything starts."""

    name = "ACTION=BURST:PER_S"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The text as it is; it is parsed where the limiter is made."""
        from provisioner.ec2.rate_option import parse_rates  # noqa: PLC0415 -- loads no boto3 for --help

        try:
            parse_rates(str(value))
        except (ValueError, StorageError) as error:
            self.fail(str(error), param, ctx)
        return str(value)


def all_rates(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> str:
    """Join the values of a repeated option of type ``Rates``; its callback."""
    return Rates().convert(",".join(texts), param, ctx)


def run(commands: click.Group, name: str) -> None:
    """Run a program's command; an error prints one line and exits with a non-zero status."""
    try:
        sys.exit(commands.main(standalone_mode=False))
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)

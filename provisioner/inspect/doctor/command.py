"""``kubectl ebs doctor``: what fails here, or will fail before anybody sees it."""

from collections.abc import Iterator
from dataclasses import replace

import click

from provisioner.inspect.command_line import Target, carry_out, reading, target_options
from provisioner.inspect.doctor import (
    account_rules,
    class_rules,
    driver_rules,
    key_rules,
    node_rules,
    report_words,
    right_rules,
    volume_rules,
    webhook_rules,
)
from provisioner.inspect.doctor.check_rules import (
    Check,
    Verdict,
    apply,
    exit_status,
    without_api_server,
)
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.doctor.gather import Answer, Question, gather
from provisioner.inspect.doctor.probes import Identity
from provisioner.inspect.shell_words import with_cluster, with_region
from provisioner.inspect.terminal import screen

_AREAS = (
    driver_rules.RULES,
    class_rules.RULES,
    webhook_rules.RULES,
    node_rules.RULES,
    volume_rules.RULES,
    right_rules.RULES,
    account_rules.RULES,
)


@click.command(short_help="Check what volumes need, in Kubernetes and in AWS.")
@target_options
@click.option("--role", metavar="ARN", default="", help="Try rights as this role (STS AssumeRole).")
@click.option(
    "--as-controller",
    is_flag=True,
    help="Try rights as the role of the controller's ServiceAccount, by a token of it.",
)
@click.option(
    "--as-service-account",
    "account",
    metavar="NAMESPACE/NAME",
    default="",
    help="The same for this ServiceAccount, also before its controller leads.",
)
@click.option(
    "--lease-namespace",
    default="",
    help="Namespace of the controller's leases; they are looked for if it is not given.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "junit"]),
    default="table",
    show_default=True,
)
def doctor(
    *,
    target: Target,
    role: str,
    as_controller: bool,
    account: str,
    lease_namespace: str,
    output: str,
) -> None:
    """Check what volumes of this cluster need, in Kubernetes and in AWS.

    Nothing is changed: rights are tried with EC2's DryRun. The exit code is 1 if a check fails, and
    0 with warnings only. A check that could not be made is "unknown", and does not fail; a role
    that you name and that may not be assumed does.
    """
    if bool(role) + as_controller + bool(account) > 1:
        raise click.UsageError(
            "--role, --as-controller and --as-service-account exclude each other"
        )
    if account and not all(account.partition("/")):
        raise click.UsageError(f"--as-service-account {account}: give NAMESPACE/NAME")
    identity = Identity(target.driver, role, as_controller or bool(account), account)
    carry_out(_doctor(Question(target, identity, lease_namespace), output))


async def _doctor(question: Question, output: str) -> int:
    async with screen.progress("checking the cluster"), reading(question.target) as readers:
        answer = await gather(readers, question)
        flags = question.target.flags
        region = answer.seen.cloud.region
        checks = [
            replace(
                each,
                remedy=with_cluster(each.remedy, flags),
                command=with_cluster(with_region(each.command, region), flags),
            )
            for each in checks_of(answer.seen)
        ]
    _show(checks, answer, output)
    return exit_status(checks)


def checks_of(seen: Evidence) -> Iterator[Check]:
    """All checks."""
    api_server = driver_rules.api_server(seen)
    yield api_server
    if api_server.verdict is Verdict.FAILED:
        yield from without_api_server(_others(seen), seen.cloud.region)
    else:
        yield from _others(seen)


def _others(seen: Evidence) -> Iterator[Check]:
    for rules in _AREAS:
        yield from apply(rules, seen)
    yield from right_rules.checks(seen)
    yield from key_rules.checks(seen)
    yield from account_rules.quota_checks(seen)


def _show(checks: list[Check], answer: Answer, output: str) -> None:
    cloud = answer.seen.cloud
    match output:
        case "json":
            who = cloud.tried_as or cloud.identity
            screen.show([report_words.as_json(checks, answer.calls, who)])
        case "junit":
            screen.show([report_words.as_junit(checks)])
        case _:
            width = screen.text_width()
            shown, cut_off = report_words.split(checks)
            for each in shown:
                screen.show(report_words.block(each, width=width, verdict=_coloured(each.verdict)))
            screen.show([*cut_off, report_words.summary(checks, answer.calls)])


def _coloured(verdict: Verdict) -> str:
    colour = report_words.colour_of(verdict)
    return screen.emphasized(verdict, colour) if colour else str(verdict)

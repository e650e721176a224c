"""``--ec2-rate``: what the user says about quotas that AWS has raised for the account."""

from collections.abc import Iterable

from provisioner.ec2.limiter import DOCUMENTED, EVERY_ACTION, Rate, Rates
from provisioner.model.errors import Reason, StorageError

_HELP = (
    "expected ACTION=BURST:PER_S (CreateVolume=300:15), ACTION=xFACTOR or *=xFACTOR, "
    "separated by commas"
)


def parse_rates(text: str | Iterable[str]) -> Rates:
    """Read ``--ec2-rate``: one text with commas, or several texts.

    Raises:
        StorageError: (INVALID_REQUEST) a part is not of the form ACTION=BURST:PER_S or ACTION=xN,
            or is about an action that another part is about.
    """
    exact: dict[str, Rate] = {}
    factors: dict[str, float] = {}
    texts = [text] if isinstance(text, str) else list(text)
    for part in (part.strip() for each in texts for part in each.split(",")):
        if not part:
            continue
        action, equals, quota = (piece.strip() for piece in part.partition("="))
        if not equals or action not in {*DOCUMENTED, EVERY_ACTION}:
            known = ", ".join(sorted(DOCUMENTED))
            raise _refused(part, f"the action must be one of {known} or *" if equals else _HELP)
        if action in {*exact, *factors}:
            raise _refused(part, f"{action} is given twice")
        if quota.startswith("x"):
            factors[action] = _positive(part, quota[1:])
        elif action == EVERY_ACTION:
            raise _refused(part, "* takes a factor only, as in *=x20")
        else:
            burst, colon, per_s = quota.partition(":")
            if not colon:
                raise _refused(part, _HELP)
            exact[action] = Rate(_positive(part, burst), _positive(part, per_s))
            if exact[action].burst < 1:
                raise _refused(part, "a burst below 1 would never let a call through")
    return Rates(exact, factors)


def _positive(part: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _refused(part, _HELP) from None
    if not 0 < number <= 1e6:  # noqa: PLR2004 -- also refuses NaN and infinity
        raise _refused(part, "numbers must be above 0 and at most 1000000")
    return number


def _refused(part: str, why: str) -> StorageError:
    return StorageError(Reason.INVALID_REQUEST, f"EC2 rate {part!r}: {why}")

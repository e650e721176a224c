"""One token bucket that learns its rate; pure: time is an argument.

Life of a bucket::

    probing    from the start: documented burst, documented rate; while callers lack tokens and
               nothing was throttled, the rate doubles every 0.3 s (accounts with raised quotas
               are used within seconds, without a flag), the first time to what another action
               was seen to be raised by: whoever had one quota raised mostly had others raised too
    tracking   from the first throttle on: the documented rate at once; then additive increase
               while callers lack tokens, multiplicative decrease on each throttled episode

Above the documented rate an increase waits for a pause that doubles with every throttle there
(short if far more than the documented quota went through before the first throttle), so that an
account at exactly the documented quota is not probed for ever. ``tests/ec2/test_limiter.py``
simulates all of it.
"""

from provisioner.ec2.rates import Rate

PROBE_EVERY_S = 0.3
PROBE_FACTOR = 2.0
MAX_PER_S = 2000.0  # beyond what one process can send; keeps the doubling finite
DECREASE = 0.7
RECOVERY_PER_S = 0.04  # of the starting rate, each second, below it
INCREASE_PER_S = 0.05  # of the starting rate, each second, above it
INCREASE_RAISED_PER_S = 0.5  # the same for an account whose quota was seen to be raised
FIRST_PAUSE_S = 30.0
FIRST_PAUSE_RAISED_S = 1.0
RAISED = 0.2  # of the burst: so far above the documented quota, and only then throttled
MAX_PAUSE_S = 600.0
LOWEST = 0.05  # of the starting rate: other users of the account may leave us little
# EC2's bucket is empty when it throttles, and calls take 100 to 400 ms to arrive: some tokens are
# left to refill there, or jitter alone would throttle a caller that keeps to the exact rate.
CUSHION = 2.0
_STEP_S = 0.1  # of the rate's integration while it changes


class Bucket:
    """Tokens of one action.

    Attributes:
        tokens: calls that may be sent now; below zero while a cushion is being refilled.
        per_s: the rate at which tokens come.
        raised: the multiple of the starting rate at which calls far beyond the starting quota went
            through; 1 while that was not seen, and again from the first throttle on.
    """

    __slots__ = (
        "_beyond",
        "_burst",
        "_decreased_at",
        "_hungry_s",
        "_increase",
        "_pause_s",
        "_raise_from",
        "_start_per_s",
        "_updated_at",
        "per_s",
        "probing",
        "raised",
        "tokens",
    )

    def __init__(self, rate: Rate, now: float) -> None:
        self.tokens = self._burst = rate.burst
        self.per_s = self._start_per_s = rate.per_s
        self.probing = True
        self.raised = 1.0
        self._updated_at = now
        self._hungry_s = 0.0
        self._decreased_at = now - 1.0
        self._pause_s = FIRST_PAUSE_S
        self._increase = INCREASE_PER_S * rate.per_s
        self._raise_from = now
        self._beyond = (
            -rate.burst
        )  # calls sent beyond what the starting quota would have allowed by now

    def advance(self, now: float, *, hungry: bool, hint: float = 1.0) -> None:
        """Let time pass.

        Args:
            now: a monotonic clock, in seconds.
            hungry: whether callers have been waiting for tokens since the last call.
            hint: ``raised`` of other actions; how far the first probe goes.
        """
        while (left := now - self._updated_at) > 0:
            step = min(left, _STEP_S) if hungry else left
            self._updated_at = now if step == left else self._updated_at + step
            self.tokens = min(self.tokens + step * self.per_s, self.most)
            if self.probing:
                self._beyond = max(self._beyond - step * self._start_per_s, -self._burst)
            if hungry:
                self._raise(step, hint)

    @property
    def most(self) -> float:
        """The calls that may be sent at once after a rest."""
        return max(self._burst, self.per_s / 4)

    def has_voided(self, taken_at: float) -> bool:
        """Whether a throttle has voided the token that was taken then."""
        return taken_at <= self._decreased_at

    def has_token(self) -> bool:
        """Whether a call may be sent now."""
        return self.tokens >= 1.0 - 1e-9

    def take(self) -> bool:
        """Take a token if there is one."""
        if not self.has_token():
            return False
        self.tokens -= 1.0
        self._beyond += 1.0
        if self.probing and self._beyond >= RAISED * self._burst:
            self.raised = self.per_s / self._start_per_s
        return True

    def refund(self, taken_at: float) -> None:
        """Put back the token of a call that was never sent; a throttle since has voided it."""
        if not self.has_voided(taken_at):
            self.tokens += 1.0
        self._beyond -= 1.0

    def ready_in_s(self) -> float:
        """Seconds until there is a token at the present rate."""
        return max(0.0, (1.0 - self.tokens) / self.per_s)

    def throttled(self, sent_at: float, now: float) -> None:
        """EC2 refused a call that was sent at ``sent_at``.

        Calls that were on their way when the rate was last lowered tell nothing new.
        """
        self.advance(now, hungry=False)
        self.tokens = min(self.tokens, 1.0 - CUSHION)
        if sent_at <= self._decreased_at:
            return
        self._decreased_at = now
        self._hungry_s = 0.0
        if self.probing and self._beyond >= RAISED * self._burst:
            self._pause_s = FIRST_PAUSE_RAISED_S
            self._increase = INCREASE_RAISED_PER_S * self._start_per_s
        if self.probing or self.per_s > self._start_per_s:
            self._raise_from = now + self._pause_s
            self._pause_s = min(self._pause_s * 2.0, MAX_PAUSE_S)
        if self.probing:
            self.probing = False
            self.raised = 1.0
            self.per_s = self._start_per_s
        elif self.per_s > self._start_per_s:
            self.per_s = max(self._start_per_s, self.per_s * DECREASE)
        else:
            self.per_s = max(self._start_per_s * LOWEST, self.per_s * DECREASE)

    def _raise(self, step: float, hint: float) -> None:
        if self.probing:
            self._hungry_s += step
            if self._hungry_s >= PROBE_EVERY_S - 1e-9:
                self._hungry_s = 0.0
                probe = max(self.per_s * PROBE_FACTOR, self._start_per_s * hint)
                self.per_s = min(probe, MAX_PER_S)
        elif self.per_s < self._start_per_s:
            self.per_s = min(
                self._start_per_s, self.per_s + step * RECOVERY_PER_S * self._start_per_s
            )
        elif self._updated_at >= self._raise_from:
            self.per_s = min(self.per_s + step * self._increase, MAX_PER_S)

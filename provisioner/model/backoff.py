"""How long to pause after each failure in a row."""

from dataclasses import dataclass

_MOST_STEPS = 32  # the power stays a number, however long the failures go on


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow from ``first_s`` to ``most_s``, each ``factor`` times the one before."""

    first_s: float
    most_s: float
    factor: float = 2.0

    def pause_s(self, failures: int) -> float:
        """The pause after a failure, in seconds; ``failures`` came before that one."""
        return min(self.first_s * self.factor ** min(failures, _MOST_STEPS), self.most_s)

    def jittered_s(self, failures: int, chance: float) -> float:
        """The same less up to half of it, so that not all who failed together return together.

        Args:
            failures: those before this one.
            chance: a random number in [0, 1).
        """
        return self.pause_s(failures) * (0.5 + 0.5 * chance)

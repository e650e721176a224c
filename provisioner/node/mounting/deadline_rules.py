"""How long a call of the kubelet waits for something that comes by itself."""

MOST_S = 60.0
# What is left for the answer to say what was waited for: a bare DeadlineExceeded says nothing.
_FOR_THE_ANSWER_S = 5.0


def patience_s(time_left_s: float | None) -> float:
    """Seconds to wait, given what is left of the kubelet's deadline; None if it set none."""
    if time_left_s is None:
        return MOST_S
    return min(MOST_S, max(time_left_s / 2, time_left_s - _FOR_THE_ANSWER_S))

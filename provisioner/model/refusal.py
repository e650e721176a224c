"""For whom a class is impossible: for EC2, whoever asks, or for this controller alone.

What aws-ebs-csi-driver 1.64 makes volumes of, as its chart installs it, is refused by a
``RefusedHereError``: in a cluster where that driver leads it is no reason to deny a class.
"""


class RefusedHereError(ValueError):
    """Only this controller refuses it; the message is one sentence."""


def retold(error: ValueError, text: str) -> ValueError:
    """The same refusal in other words."""
    return RefusedHereError(text) if isinstance(error, RefusedHereError) else ValueError(text)

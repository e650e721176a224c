"""What is wrong with a class, and for whom: for EC2, whoever asks, or for this controller alone.

A plain ValueError says that no volume can be made as it is asked for: EC2 or aws-ebs-csi-driver
1.64, as its chart installs it, refuse it too. What that driver makes a volume of all the same is a
``RefusedHereError``: it proves nothing in a cluster where the driver leads.
"""


class RefusedHereError(ValueError):
    """This controller refuses it, for a reason of its own; aws-ebs-csi-driver makes a volume."""


class AtExecutionError(ValueError):
    """Go sees this mistake in a template only when it comes to it, so never in a dead branch."""


def retold(error: ValueError, text: str) -> ValueError:
    """A refusal in other words, that weighs as much."""
    kinds = (RefusedHereError, AtExecutionError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), ValueError)
    return kind(text)

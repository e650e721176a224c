"""The client token of CreateVolume: the same request sent again, by anybody, gives the same volume.

It follows from the volume's name alone, so that a controller that has lost the reply, or all of its
memory, sends it again. A token that EC2 has used up for a request that failed gets a number:
``creation_rules`` says when.
Source: aws-ebs-csi-driver v1.64, which computes it in the same way, so either finds the volumes
that the other has begun; EC2 developer guide "Ensuring idempotency".
"""

import hashlib


def client_token(volume_name: str, number: int = 1) -> str:
    """The token of a volume's ``number``-th request: the hash of its name, with ``-2`` … added."""
    name = volume_name if number == 1 else f"{volume_name}-{number}"
    return hashlib.sha256(name.encode()).hexdigest()

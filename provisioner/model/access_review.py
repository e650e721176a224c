"""What the API server answers to the question whether one may do something."""

import msgspec

from provisioner.model.meta import KubeObject


class ReviewStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a review of access."""

    allowed: bool = False


class AccessReview(KubeObject, frozen=True, gc=False, kw_only=True):
    """A SelfSubjectAccessReview."""

    status: ReviewStatus = ReviewStatus()

"""What a review is answered when no rule could answer it.

A webhook that cannot tell must not stop the cluster: it lets the object through and says so. With
``--strict`` it refuses instead, in a way that makes clients try again by themselves.
"""

from enum import StrEnum
from typing import Any

from webhook.model.review import Answer, RequestOf, allow, deny
from webhook.reviews.documents import inside

# Plural and group of what each path is for; a subresource stands behind a slash.
SUBJECTS = {
    "/mutate/persistentvolumes": {("", "persistentvolumes")},
    "/validate/persistentvolumes": {("", "persistentvolumes")},
    "/validate/persistentvolumeclaims": {("", "persistentvolumeclaims")},
    "/validate/pods": {("", "pods")},
    "/validate/bindings": {("", "pods/binding"), ("", "bindings")},
    "/validate/storageclasses": {("storage.k8s.io", "storageclasses")},
}
# Of a persistent volume's required node affinity; a pod's is bounded by its own rule.
MOST_EXPRESSIONS = 500
_TERMS = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
# Paths that only ever warn: there is nothing that a refusal would protect, strict or not.
_ADVISORY = {"/validate/persistentvolumeclaims"}
_WITHOUT_OBJECT = {"DELETE", "CONNECT"}


class Trouble(StrEnum):
    """Why no rule could answer; in metrics, as ``Answer.why``."""

    ERROR = "InternalError"
    BUDGET = "BudgetExhausted"
    LOAD = "Overloaded"


_TOO_MUCH = "TooManyParts"
_SENTENCES = {
    Trouble.ERROR: "it failed by an error of its own, which is in its log",
    Trouble.BUDGET: "it found no answer in the time that the API server gives it",
    Trouble.LOAD: "it has too many reviews to answer at once",
}


def is_strict(path: str, *, strict: bool) -> bool:
    """Whether what a path could not check is refused, under ``--strict`` or without."""
    return strict and path not in _ADVISORY


def unchecked(trouble: Trouble, *, strict: bool) -> Answer:
    """Answer a review that no rule has answered."""
    sentence = _SENTENCES[trouble]
    if strict:
        message = f"ebs-webhook could not check this and is strict: {sentence}; try again"
        return deny(trouble, message, code=503, retry_after_s=1)
    return allow(trouble, warnings=[f"ebs-webhook let this through unchecked: {sentence}"])


def unread(sentence: str, *, strict: bool) -> Answer:
    """Answer a review of an object that is too much to look at; trying again would not help.

    Args:
        sentence: the bound that it is beyond.
        strict: refuse it.
    """
    if strict:
        message = (
            f"ebs-webhook could not check this and is strict: {sentence}, which it does not read"
        )
        return deny(_TOO_MUCH, message)
    return allow(_TOO_MUCH, warnings=[f"ebs-webhook let this through unchecked: {sentence}"])


def unread_inline(sentence: str) -> Answer:
    """Refuse a pod that is too much to look at and may have an inline EBS volume, strict or not.

    Else whoever adds enough to a pod could name a volume of another namespace's claim in it.
    """
    message = (
        f"{sentence}, which ebs-webhook does not read, so it cannot tell whose an inline EBS "
        "volume of it (awsElasticBlockStore) is: use a claim, or make the pod smaller"
    )
    return deny(_TOO_MUCH, message, code=403)


def too_much(request: RequestOf[Any]) -> str:
    """Which bound an object is beyond, "" for none.

    Not of a pod: that nobody takes another tenant's volume is checked whatever else it says.
    """
    terms = inside(request.object, *_TERMS)
    if isinstance(terms, list):
        weight = len(terms) + sum(map(_weight, terms[:MOST_EXPRESSIONS]))
        if weight > MOST_EXPRESSIONS:
            return f"its node affinity has more than {MOST_EXPRESSIONS} terms and expressions"
    return ""


def _weight(term: object) -> int:
    """How many expressions a term has; for each, more than twenty values count as more."""
    listed = [inside(term, name) for name in ("matchExpressions", "matchFields")]
    expressions = [each for one in listed if isinstance(one, list) for each in one]
    values = (inside(each, "values") for each in expressions[:MOST_EXPRESSIONS])
    return len(expressions) + sum(len(one) // 20 for one in values if isinstance(one, list))


def beyond(path: str, request: RequestOf[Any]) -> Answer | None:
    """Answer a review that no rule is for: of another resource, or without an object; else None.

    Both come from a webhook configuration that somebody has changed, which must not stop a request
    that has nothing to do with volumes.
    """
    subjects = SUBJECTS.get(path)
    if subjects is not None and (request.resource.group, request.subject) not in subjects:
        found = f"{request.subject or 'no resource'}, which {path} is not for"
        warning = f"ebs-webhook was asked about {found}; look at its webhook configuration"
        return allow("UnknownResource", warnings=[warning])
    if request.object is not None:
        return None
    if request.operation in _WITHOUT_OBJECT:
        return allow("NothingToDo")
    return allow("NoObject", warnings=["ebs-webhook was asked about an object and got none"])

"""AdmissionReview: how a review is read, and how it is answered, also when no rule could.

A webhook that cannot check an object must not stop the cluster: it lets the object through with a
warning. With ``--strict`` it refuses instead, in a way that makes clients try again by themselves.
Source: Kubernetes 1.36 API reference, admission.k8s.io/v1; what the API server makes of an answer
was measured on 1.36.3.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

import msgspec

Json = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
# Of a review that is decoded whole. The largest object that etcd stores, 1.5 MiB, has fewer unless
# somebody makes it so; decoded, so many take 8 MiB at most, besides their text.
MOST_PARTS = 50_000
# The API server's uids have 36; what comes back in each answer and stands in logs has an end.
UID_MOST_CHARACTERS = 128
# Kubernetes 1.36: one warning of more than 256 characters, or 4 KiB in all, is cut off.
WARNING_MOST_CHARACTERS = 256
# Where the API server writes the uid: before the object, whatever size or depth that has.
BEGINNING = 4096
_UID = re.compile(rb'"request":\s*\{\s*"uid":\s*"([^"\\]{1,128})"')
_INLINE_EBS = re.compile(rb'"awsElasticBlockStore"\s*:')

# Plural and group of what each path is for; a subresource stands behind a slash.
SUBJECTS = {
    "/mutate/persistentvolumes": {("", "persistentvolumes")},
    "/mutate/pods": {("", "pods")},
    "/validate/persistentvolumes": {("", "persistentvolumes")},
    "/validate/persistentvolumeclaims": {("", "persistentvolumeclaims")},
    "/validate/pods": {("", "pods")},
    "/validate/bindings": {("", "pods/binding"), ("", "bindings")},
    "/validate/storageclasses": {("storage.k8s.io", "storageclasses")},
}
# Of a persistent volume's required node affinity; a pod's is bounded by its own rule.
MOST_EXPRESSIONS = 500
_TERMS = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
# Paths that never refuse: there is nothing that a refusal would protect, strict or not.
_ADVISORY = {"/validate/persistentvolumeclaims", "/mutate/pods"}
_WITHOUT_OBJECT = {"DELETE", "CONNECT"}


class MalformedReviewError(ValueError):
    """A body that is no AdmissionReview of v1; the text says what is wrong with it."""


class TooDeepError(MalformedReviewError):
    """A body with more levels than Python may recurse: its ``managedFields`` may have 10,000."""


class GroupVersionResource(msgspec.Struct, frozen=True, kw_only=True):
    """``request.resource``."""

    group: str = ""
    version: str = ""
    resource: str = ""


class _Head(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    uid: str
    operation: str
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""


T = TypeVar("T")


class RequestOf(_Head, Generic[T], frozen=True, kw_only=True):
    """``request`` of a review, as far as it is used. ``object`` is None for a deletion."""

    object: T | None = None

    @property
    def subject(self) -> str:
        """What is reviewed: plural, with the subresource behind a slash, as rules name it."""
        plural = self.resource.resource
        return f"{plural}/{self.sub_resource}" if self.sub_resource else plural


Request = RequestOf[Json]


class _Review(msgspec.Struct, Generic[T], frozen=True, rename="camel", kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: T | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a review is answered; ``allow`` and ``deny`` make them.

    Attributes:
        allowed: whether the object is let through.
        why: for metrics, one CamelCase word: ``Labelled``, ``NothingToDo``, ``ZoneConflict``, …
        message: of a denial, for the user.
        code: of a denial, the HTTP status that the user's client sees.
        retry_after_s: of a denial, when the client should try again by itself.
        warnings: shown to the user whatever the outcome.
        patch: of an allowed review, the operations of a JSON Patch (RFC 6902).
        audit: annotations of the audit log, by key without a slash.
    """

    allowed: bool
    why: str
    message: str = ""
    code: int = 0
    retry_after_s: int | None = None
    warnings: tuple[str, ...] = ()
    patch: tuple[Json, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)


# Is given the loop's time by which it should have answered: with a little time left to word a doubt
# of its own before it is cut off.
Handler = Callable[[RequestOf[Any], float], Awaitable[Answer]]


def allow(
    why: str, *, warnings: Sequence[str] = (), patch: Sequence[Json] = (), **audit: str
) -> Answer:
    """Let an object through."""
    return Answer(allowed=True, why=why, warnings=tuple(warnings), patch=tuple(patch), audit=audit)


def deny(
    why: str,
    message: str,
    *,
    code: Literal[403, 422, 503] = 422,
    retry_after_s: int | None = None,
    **audit: str,
) -> Answer:
    """Refuse an object: 422 for what it says, 403 for a rule, 503 for "try again"."""
    return Answer(
        allowed=False,
        why=why,
        message=message,
        code=code,
        retry_after_s=retry_after_s,
        audit=audit,
    )


_REASONS = {403: "Forbidden", 422: "Invalid", 503: "ServiceUnavailable"}


def is_bulky(body: bytes) -> bool:
    """Whether a review has more than MOST_PARTS objects, lists and members of either.

    Such a one would take up to thirty times its size to decode. What only looks like them, within
    text, does not count; it is left out only where it matters, which is rare.
    """
    if len(body) <= MOST_PARTS or _separators(body) <= MOST_PARTS:
        return False
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 5 * MOST_PARTS:  # a part has two texts at most
        return True
    return _separators(b"".join(plain.split(b'"')[::2])) > MOST_PARTS


def parts_at_most(body: bytes) -> int:
    """How many objects, lists and members of either are decoded of a review, at most."""
    return min(_separators(body), MOST_PARTS)


def has_inline_ebs(body: bytes) -> bool:
    """Whether an object in a review has such a field; within text its quotes would be escaped."""
    return _INLINE_EBS.search(body) is not None


def uid_of(beginning: bytes) -> str:
    """The uid by the beginning of a review that is not decoded, "" if it is not there."""
    found = _UID.search(beginning, 0, BEGINNING)
    return found[1].decode(errors="replace") if found else ""


def _separators(text: bytes) -> int:
    return sum(map(text.count, (b"{", b"[", b",")))


def decode(body: bytes, of: type[T] | None) -> RequestOf[T]:
    """Read a review; its object as this type, None for all but its object.

    What a type leaves out is not made: of a pod of 700 KB a twentieth of the time stays.

    Raises:
        MalformedReviewError: not JSON, another kind or version, no request, a uid that is none, or
            an object that is not of the type.
        TooDeepError: nothing of it could be read.
    """
    kind: Any = _Head if of is None else RequestOf[of]  # type: ignore[valid-type]
    try:
        review = msgspec.json.decode(body, type=_Review[kind])
    except RecursionError as error:
        raise TooDeepError("the AdmissionReview is nested hundreds of levels deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedReviewError(f"the body is not an AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.kind or 'no kind'} of {review.api_version or 'no version'}"
        raise MalformedReviewError(f"the body is {cut(found)}, expected {KIND} of {API_VERSION}")
    request: Any = review.request
    if request is None or not request.uid:
        raise MalformedReviewError("the AdmissionReview has no request with a uid")
    if len(request.uid) > UID_MOST_CHARACTERS:
        most = f"more than {UID_MOST_CHARACTERS} characters"
        raise MalformedReviewError(f"the AdmissionReview's uid has {most}")
    if of is None:
        return RequestOf(**msgspec.structs.asdict(request))
    read: RequestOf[T] = request
    return read


class Trouble(StrEnum):
    """Why no rule could answer; in metrics, as ``Answer.why``."""

    ERROR = "InternalError"
    BUDGET = "BudgetExhausted"
    LOAD = "Overloaded"


_TOO_MUCH = "TooManyParts"
UNCHECKED = (*Trouble, _TOO_MUCH)
"""Why an object may be let through that no rule has looked at."""
_STRICT = "ebs-webhook could not check this, and --strict refuses unchecked objects"
_SENTENCES = {
    Trouble.ERROR: "it failed with an internal error, which is in its log",
    Trouble.BUDGET: "it did not finish before the API server's timeout",
    Trouble.LOAD: "it has too many reviews in progress",
}


def is_strict(path: str, *, strict: bool) -> bool:
    """Whether what a path could not check is refused, under ``--strict`` or without."""
    return strict and path not in _ADVISORY


def unchecked(trouble: Trouble, *, strict: bool) -> Answer:
    """Answer a review that no rule has answered."""
    sentence = _SENTENCES[trouble]
    if strict:
        return deny(trouble, f"{_STRICT}: {sentence}; try again", code=503, retry_after_s=1)
    return allow(trouble, warnings=[f"ebs-webhook let this through unchecked: {sentence}"])


def unread(sentence: str, *, strict: bool) -> Answer:
    """Answer a review of an object that is too much to look at; trying again would not help.

    Args:
        sentence: the bound that it is beyond.
        strict: refuse it.
    """
    if strict:
        return deny(_TOO_MUCH, f"{_STRICT}: {sentence}, which is more than it reads")
    return allow(_TOO_MUCH, warnings=[f"ebs-webhook let this through unchecked: {sentence}"])


def unread_inline(sentence: str) -> Answer:
    """Refuse a pod that is too much to look at and may have an inline EBS volume, strict or not.

    Otherwise a pod made large enough could use a volume of another namespace's claim.
    """
    message = (
        f"{sentence}, which is more than ebs-webhook reads, so it cannot check who owns an inline "
        "EBS volume (awsElasticBlockStore) in it: use a claim, or make the pod smaller"
    )
    return deny(_TOO_MUCH, message, code=403)


def beyond_bounds(request: RequestOf[Any]) -> str:
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


def misdirected(path: str, request: RequestOf[Any]) -> Answer | None:
    """Answer a review that no rule is for: of another resource, or without an object; else None.

    Both come from a webhook configuration that somebody has changed, which must not stop a request
    that has nothing to do with volumes.
    """
    subjects = SUBJECTS.get(path)
    if subjects is not None and (request.resource.group, request.subject) not in subjects:
        found = f"{request.subject or 'no resource'}, which {path} is not for"
        warning = f"ebs-webhook received a review of {found}; check its webhook configuration"
        return allow("UnknownResource", warnings=[warning])
    if request.object is not None:
        return None
    if request.operation in _WITHOUT_OBJECT:
        return allow("NothingToDo")
    return allow("NoObject", warnings=["ebs-webhook received a review without an object"])


def encode(uid: str, answer: Answer) -> bytes:
    """Write the review that answers the request with this uid.

    A patch goes with an allowed answer only, and never empty: the API server takes both for a
    failed call.
    """
    response: Json = {"uid": uid, "allowed": answer.allowed}
    if answer.warnings:
        response["warnings"] = [cut(warning) for warning in answer.warnings]
    if answer.audit:
        response["auditAnnotations"] = dict(answer.audit)
    if not answer.allowed:
        response["status"] = _status(answer)
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        # Base64 in JSON, which is what msgspec makes of bytes.
        response["patch"] = msgspec.json.encode(answer.patch)
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def cut(warning: str) -> str:
    """A warning that the API server will not cut off in the middle of a word of ours."""
    if len(warning) <= WARNING_MOST_CHARACTERS:
        return warning
    return f"{warning[: WARNING_MOST_CHARACTERS - 2].rpartition(' ')[0]} …"


def _status(answer: Answer) -> Json:
    status: Json = {
        "status": "Failure",
        "message": answer.message,
        "reason": _REASONS[answer.code],
        "code": answer.code,
    }
    if answer.retry_after_s is not None:
        status["details"] = {"retryAfterSeconds": answer.retry_after_s}
    return status


def inside(document: Any, *keys: str) -> Any:
    """The member under these keys; None when it, or anything above it, is not there."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document

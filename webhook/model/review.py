"""AdmissionReview: what the API server asks, what it is answered.

Source: Kubernetes 1.36 API reference, admission.k8s.io/v1; what the API server makes of an answer
was measured on 1.36.3.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
        raise MalformedReviewError(f"the body is no AdmissionReview: {error}") from error
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

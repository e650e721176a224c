from typing import Any

import msgspec
import pytest

from tests.webhook.front_world import PODS, VOLUMES, review
from webhook.model import review as rules
from webhook.model.review import Json, Request, Trouble, decode


def request_for(resource: str = "pods", **parts: Any) -> Request:
    return decode(msgspec.json.encode(review(resource, **parts)), Json)


@pytest.mark.parametrize("trouble", list(Trouble))
def test_lets_through_with_a_warning_what_could_not_be_checked(trouble: Trouble) -> None:
    answer = rules.unchecked(trouble, strict=False)

    assert (answer.allowed, answer.why) == (True, trouble)
    assert "unchecked" in answer.warnings[0]
    assert len(answer.warnings[0]) <= 256


def test_a_path_that_only_warns_is_never_strict() -> None:
    assert not rules.is_strict("/validate/persistentvolumeclaims", strict=True)
    assert rules.is_strict("/validate/pods", strict=True)
    assert not rules.is_strict("/validate/pods", strict=False)


@pytest.mark.parametrize("trouble", list(Trouble))
def test_refuses_it_for_now_when_strict(trouble: Trouble) -> None:
    answer = rules.unchecked(trouble, strict=True)

    assert not answer.allowed
    assert (answer.code, answer.retry_after_s, answer.why) == (503, 1, trouble)
    assert "try again" in answer.message


@pytest.mark.parametrize(
    ("path", "resource", "sub"),
    [
        (PODS, "pods", ""),
        ("/validate/bindings", "pods", "binding"),
        ("/validate/bindings", "bindings", ""),
        ("/validate/persistentvolumeclaims", "persistentvolumeclaims", ""),
        (VOLUMES, "persistentvolumes", ""),
        ("/some/path/of/a/test", "configmaps", ""),
    ],
)
def test_a_rule_decides_about_what_its_path_is_for(path: str, resource: str, sub: str) -> None:
    assert rules.misdirected(path, request_for(resource, subResource=sub)) is None


@pytest.mark.parametrize(
    ("resource", "sub"),
    [("configmaps", ""), ("pods", "status"), ("metrics.k8s.io/pods", ""), ("", "")],
)
def test_another_resource_is_let_through_with_a_warning(resource: str, sub: str) -> None:
    answer = rules.misdirected(PODS, request_for(resource, subResource=sub))

    assert answer is not None
    assert (answer.allowed, answer.why) == (True, "UnknownResource")
    assert "webhook configuration" in answer.warnings[0]


@pytest.mark.parametrize(
    ("operation", "why", "warnings"),
    [("CREATE", "NoObject", 1), ("UPDATE", "NoObject", 1), ("DELETE", "NothingToDo", 0)],
)
def test_a_review_without_an_object_is_let_through(operation: str, why: str, warnings: int) -> None:
    answer = rules.misdirected(PODS, request_for(operation=operation, object=None))

    assert answer is not None
    assert (answer.allowed, answer.why, len(answer.warnings)) == (True, why, warnings)

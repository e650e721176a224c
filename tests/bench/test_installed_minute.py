"""What all that is installed costs in a quiet minute."""

import base64
import json
from collections import Counter

from tests.bench import installed_minute
from tests.bench.api_traffic import counted
from tests.bench.installed_minute import LEADER, STANDBY, WEBHOOK, Minute

MINUTES = [
    Minute(LEADER, 8.5, Counter({"patch leases": 48}), 0.4, 330.0),
    Minute(STANDBY, 8.0, Counter({"get leases": 40}), 0.3, 320.0),
    Minute(WEBHOOK, 4.0, Counter({"patch leases": 12, "get secrets": 1}), 0.2, 250.0),
]


def an_event(name: str, token_id: str) -> bytes:
    extra = {"authentication.kubernetes.io/credential-id": [f"JTI={token_id}"]}
    at = "2026-11-24T03:00:10.000000Z"
    event = {"auditID": name, "verb": "get", "requestReceivedTimestamp": at}
    return json.dumps({**event, "user": {"extra": extra}}).encode()


def test_requests_of_one_account_are_told_apart_by_their_token() -> None:
    log = b"\n".join([an_event("one", "a"), an_event("two", "b"), an_event("three", "b")])
    at_s = 1795489210.0

    assert counted(log, at_s, at_s + 1, "a").total() == 1
    assert counted(log, at_s, at_s + 1, "b").total() == 2
    assert counted(log, at_s, at_s + 1).total() == 3


def test_a_tokens_id_is_read_from_it() -> None:
    payload = base64.urlsafe_b64encode(b'{"jti":"6f9c","sub":"x"}').rstrip(b"=").decode()

    assert installed_minute.token_id(f"head.{payload}.signature") == "6f9c"


def test_what_is_installed_has_two_replicas_of_the_webhook() -> None:
    rows = installed_minute.markdown(MINUTES).splitlines()

    assert f"| {WEBHOOK} | 4.0 | 13: patch leases 12, get secrets 1 | 0.2 | 250 |" in rows
    assert rows[-1].endswith("| 24.5 | 114 | 1.1 | 1150 |")


def test_bytes_that_nobody_could_count_are_not_told() -> None:
    unknown = [Minute(LEADER, None)]

    assert "|  | 0 | 0.0 | 0 |" in installed_minute.markdown(unknown)

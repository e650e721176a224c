"""From which sources volumes are being made, whatever becomes of their attempts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.creation import Attempts
from provisioner.controller.provisioning.creation_rules import Attempt
from provisioner.controller.provisioning.plan_rules import Plan
from provisioner.model.claim import DataSource
from provisioner.model.volume import CreateRequest
from tests.builders import a_claim, a_class

NAMES = ("monday", "tuesday")
UIDS = ("one", "two", "three")
FROM = {name: a_claim(source=DataSource(kind="PersistentVolumeClaim", name=name)) for name in NAMES}
EMPTY = Attempt(
    Plan(a_claim(), read(a_class()), None, CreateRequest("token", "us-east-1a", 1, "gp3")),
    started_at_s=0.0,
)


@given(st.lists(st.tuples(st.sampled_from(UIDS), st.sampled_from([*NAMES, "", "ends"]))))
def test_a_source_is_in_use_while_an_attempt_that_is_made_from_it_is_kept(steps):
    attempts = Attempts()
    for uid, step in steps:
        if step == "ends":
            attempts.pop(uid, None)
        else:
            plan = replace(EMPTY.plan, claim=FROM.get(step, EMPTY.plan.claim))
            attempts[uid] = replace(EMPTY, plan=plan)

    claims = [attempt.plan.claim for attempt in attempts.values()]
    for claim in FROM.values():
        assert attempts.are_made_from(claim.source_key) is (claim in claims)
    assert len(attempts._sources) == len({claim.source_key for claim in claims})

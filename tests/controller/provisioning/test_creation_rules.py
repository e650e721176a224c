import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.provisioning.client_token_rules import client_token
from provisioner.controller.provisioning.creation_rules import (
    TOKEN_LIFE_S,
    UNANSWERED_S,
    UNSEEN_S,
    Attempt,
    Await,
    Continue,
    Discard,
    GiveUp,
    LookUp,
    Save,
    Send,
    after_cancel,
    after_failure,
    after_look_up,
    inherited,
    is_token_old,
    late,
    look_again,
    look_up_first,
    next_step,
    pause_s,
    under_token,
    with_volume,
)
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import WHEN_WOKEN, Later
from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.model.volume import VolumeState
from tests.builders import UID, a_class, a_plan, a_volume, an_ec2_error

FRESH = Attempt(plan=a_plan(), started_at_s=100.0)
MADE = with_volume(FRESH, a_volume(state=VolumeState.CREATING))
REFUSED = an_ec2_error(Reason.QUOTA_EXCEEDED)
LOOKING = replace(FRESH, looking_since_s=100.0, refusal=REFUSED)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)

reasons = st.sampled_from(list(Reason))
outcomes = st.sampled_from(list(Outcome))
states = st.sampled_from(list(VolumeState))
volumes = st.builds(
    a_volume,
    st.sampled_from(["vol-1", "vol-2"]),
    state=states,
    size_gib=st.integers(0, 3),
    encrypted=st.booleans(),
)
attempts = st.builds(
    Attempt,
    plan=st.sampled_from(
        [a_plan(), a_plan(storage_class=a_class(parameters={"encrypted": "true"}))]
    ),
    started_at_s=st.just(100.0),
    token_number=st.integers(1, 3),
    uncertain=st.booleans(),
    volume=st.none() | volumes,
    looking_since_s=st.none() | st.floats(0, 200),
    refusal=st.none() | st.builds(an_ec2_error, reasons, outcomes),
)


def test_an_attempt_begins_by_asking():
    assert next_step(FRESH, None, None) == Send()


def test_an_attempt_in_doubt_begins_by_looking():
    assert next_step(LOOKING, None, None) == LookUp()


@pytest.mark.parametrize(
    ("seen", "missing_for_s"),
    [
        pytest.param(None, None, id="not looked at yet"),
        pytest.param(None, 0.0, id="not visible yet"),
        pytest.param(None, CONSISTENCY_S - 1, id="not visible for long, but not long enough"),
        pytest.param(a_volume(state=VolumeState.CREATING), None, id="creating"),
    ],
)
def test_a_volume_on_its_way_is_waited_for(seen, missing_for_s):  # race 7
    assert next_step(MADE, seen, missing_for_s) == Await()


@pytest.mark.parametrize(
    ("missing_for_s", "following"),
    [
        (None, WHEN_WOKEN),
        (0.0, Later(60.0)),
        (58.0, Later(2.0)),
        (59.9, Later(1.0)),
        (60.0, Later(240.0)),
        (299.9, Later(1.0)),
    ],
)
def test_a_missing_volume_is_given_up_in_time_although_nothing_wakes_the_claim(
    missing_for_s, following
):
    assert look_again(MADE, missing_for_s) == following


@pytest.mark.parametrize("state", [VolumeState.AVAILABLE, VolumeState.IN_USE])
def test_a_volume_that_is_there_is_saved_as_ec2_shows_it(state):
    seen = a_volume(state=state, zone="us-east-1c")

    assert next_step(MADE, seen, None) == Save(seen)


@pytest.mark.parametrize("state", [VolumeState.AVAILABLE, VolumeState.IN_USE])
def test_a_volume_that_a_look_up_has_shown_is_saved_without_another_look(state):
    there = a_volume(state=state)

    assert next_step(with_volume(FRESH, there, is_shown=True), None, None) == Save(there)


@pytest.mark.parametrize("state", [VolumeState.AVAILABLE, VolumeState.IN_USE])
def test_a_volume_that_only_a_repeated_request_has_named_is_looked_at_first(state):
    # DeleteVolume of one that EC2 does not show yet says that there is none, and it would stay.
    there = a_volume(state=state)

    assert next_step(with_volume(FRESH, there), None, None) == Await()
    assert next_step(with_volume(FRESH, there), None, 3.0) == Await()
    assert next_step(with_volume(FRESH, there), there, None) == Save(there)


@pytest.mark.parametrize(
    ("asked", "made", "words"),
    [
        ({"snapshot_id": "snap-1"}, {}, "from no snapshot instead of snap-1"),
        ({"snapshot_id": "snap-1"}, {"snapshot_id": "snap-2"}, "from snap-2 instead of snap-1"),
        ({"source_volume_id": "vol-a"}, {"source_volume_id": "vol-b"}, "as a copy of vol-b"),
    ],
)
def test_a_volume_without_the_data_that_were_asked_for_is_deleted_first(
    asked, made, words
):  # race 7
    plan = replace(FRESH.plan, request=replace(FRESH.plan.request, **asked))
    volume = replace(a_volume(), **made)

    step = next_step(with_volume(replace(FRESH, plan=plan), volume), volume, None)

    assert isinstance(step, Discard)
    assert words in step.then.error.message
    assert step.then.next_token == 2


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ({"snapshot_id": "snap-1"}, {"snapshot_id": "snap-1"}),
        ({"source_volume_id": "vol-a"}, {"source_volume_id": "vol-a"}),
        ({"source_volume_id": "vol-a"}, {}),
    ],
)
def test_a_volume_with_its_data_is_saved(asked, made):
    plan = replace(FRESH.plan, request=replace(FRESH.plan.request, **asked))
    volume = replace(a_volume(), **made)

    assert next_step(with_volume(replace(FRESH, plan=plan), volume), volume, None) == Save(volume)


def test_a_volume_that_is_too_small_is_deleted_first():  # race 7, race 21
    small = a_volume(size_gib=0)

    step = next_step(with_volume(FRESH, small), small, None)

    assert isinstance(step, Discard)
    assert step.volume == small
    assert "with 0 GiB instead of the requested 1 GiB" in step.then.error.message
    assert step.then.next_token == 2


def test_a_volume_that_failed_is_deleted_first():
    failed = a_volume(state=VolumeState.ERROR)

    step = next_step(MADE, failed, None)

    assert isinstance(step, Discard)
    assert step.volume == failed
    assert step.then.error.reason is Reason.VOLUME_STATE
    assert not step.then.choose_again
    assert step.then.next_token == 2


@pytest.mark.parametrize(
    ("seen", "missing_for_s"),
    [
        pytest.param(None, UNSEEN_S, id="unknown to EC2 for long"),
        pytest.param(a_volume(state=VolumeState.DELETING), None, id="being deleted"),
        pytest.param(a_volume(state=VolumeState.DELETED), None, id="deleted"),
    ],
)
def test_a_volume_that_vanished_is_planned_anew_under_the_next_token(seen, missing_for_s):
    step = next_step(MADE, seen, missing_for_s)

    assert isinstance(step, GiveUp)
    assert step.error.reason is Reason.VOLUME_NOT_FOUND
    assert step.error.retry_after_s
    assert not step.choose_again
    assert step.next_token == 2


def test_a_volume_that_no_description_has_shown_yet_is_waited_for_longer_and_told():
    assert late(MADE, CONSISTENCY_S - 1) is None
    assert next_step(MADE, None, UNSEEN_S - 1) == Await()
    told = late(MADE, CONSISTENCY_S)
    assert told is not None
    assert "has not listed it for 60 s" in told.message
    shown = replace(MADE, is_shown=True)
    assert isinstance(next_step(shown, None, CONSISTENCY_S), GiveUp)


def test_a_volume_with_a_key_of_its_own_is_not_waited_for_longer():
    plan = a_plan(
        storage_class=a_class(parameters={"kmsKeyId": "arn:aws:kms:r:123456789012:key/k"})
    )

    step = next_step(replace(MADE, plan=plan), None, CONSISTENCY_S)

    assert isinstance(step, GiveUp)
    assert step.error.reason is Reason.KEY_UNUSABLE


keys = pytest.mark.parametrize(
    ("parameters", "encrypted", "key"),
    [
        pytest.param({"encrypted": "true"}, False, "the account's default key", id="default key"),
        pytest.param(
            {}, True, "the account's default key", id="encrypted by the account's setting"
        ),
        pytest.param({"kmsKeyId": "arn:aws:kms:r:123456789012:key/k"}, True, "key/k", id="own key"),
    ],
)


@keys
def test_an_encrypted_volume_that_vanished_blames_its_key(parameters, encrypted, key):
    plan = a_plan(storage_class=a_class(parameters=parameters))
    attempt = with_volume(replace(FRESH, plan=plan), a_volume(encrypted=encrypted))

    step = next_step(attempt, None, UNSEEN_S)

    assert isinstance(step, GiveUp)
    assert step.error.reason is Reason.KEY_UNUSABLE
    assert key in step.error.message


@keys
def test_an_encrypted_volume_that_failed_blames_its_key(parameters, encrypted, key):
    plan = a_plan(storage_class=a_class(parameters=parameters))
    failed = a_volume(encrypted=encrypted, state=VolumeState.ERROR)

    step = next_step(with_volume(replace(FRESH, plan=plan), a_volume()), failed, None)

    assert isinstance(step, Discard)
    assert step.then.error.reason is Reason.KEY_UNUSABLE
    assert "(state error), as it does when it cannot use a KMS key" in step.then.error.message
    assert key in step.then.error.message


def test_a_lost_reply_is_answered_by_the_identical_request():
    verdict = after_failure(FRESH, LOST, 101.0)

    assert isinstance(verdict, Continue)
    assert verdict.attempt == replace(FRESH, uncertain=True, unanswered_since_s=101.0)
    assert next_step(verdict.attempt, None, None) == Send()


def going_on(attempt: Attempt, error: StorageError, now_s: float) -> Attempt:
    verdict = after_failure(attempt, error, now_s)
    assert isinstance(verdict, Continue)
    return verdict.attempt


def test_replies_that_stay_lost_are_followed_by_look_ups_and_another_zone():
    attempt, now_s = FRESH, 101.0
    while next_step(attempt, None, None) == Send():
        attempt, now_s = going_on(attempt, LOST, now_s), now_s + 30.0
    assert UNANSWERED_S <= now_s - 101.0 <= UNANSWERED_S + 30.0

    assert after_look_up(attempt, [], now_s) is attempt
    verdict = after_look_up(attempt, [], now_s + CONSISTENCY_S)

    assert isinstance(verdict, GiveUp)
    assert verdict.choose_again
    assert verdict.error.reason is Reason.ZONE_NOT_ANSWERING
    assert "for 3 minutes, and has created none" in verdict.error.message
    assert FRESH.plan.request.zone in verdict.error.message


def test_a_volume_that_was_made_in_silence_is_found_by_the_look_ups():
    attempt = replace(FRESH, unanswered_since_s=100.0)
    silent = going_on(attempt, LOST, 100.0 + UNANSWERED_S)

    found = after_look_up(silent, [a_volume()], 100.0 + UNANSWERED_S + 1)

    assert isinstance(found, Attempt)
    assert next_step(found, None, None) == Save(a_volume())


def test_one_minute_of_look_ups_serves_for_all_burned_tokens():
    burned, mismatch = 20, an_ec2_error(Reason.TOKEN_MISMATCH)
    attempt: Attempt | GiveUp = inherited(FRESH, 600.0)
    now_s = 100.0
    while isinstance(attempt, Attempt) and attempt.token_number <= burned:
        if next_step(attempt, None, None) == Send():
            attempt = going_on(attempt, mismatch, now_s)
        else:
            now_s += LOOK_AGAIN_S
            attempt = after_look_up(attempt, [], now_s)

    assert isinstance(attempt, Attempt)
    assert now_s - 100.0 <= CONSISTENCY_S + LOOK_AGAIN_S
    assert next_step(attempt, None, None) == Send()


def test_a_lost_reply_after_the_look_ups_makes_them_count_no_more():
    clear = replace(FRESH, token_number=2, is_clear=True)

    lost = going_on(clear, LOST, 101.0)

    refused = going_on(lost, an_ec2_error(Reason.TOKEN_MISMATCH), 102.0)
    assert refused.looking_since_s == 102.0


def test_the_next_attempt_of_a_claim_begins_with_the_token_that_was_not_burned():
    verdict = after_failure(
        replace(FRESH, token_number=3, is_clear=True), an_ec2_error(Reason.KEY_UNUSABLE), 101.0
    )

    assert isinstance(verdict, GiveUp)
    assert verdict.next_token == 3
    again = under_token(FRESH, verdict.next_token)
    assert again.plan.request.client_token == client_token(f"pvc-{UID}", 3)


@pytest.mark.parametrize(
    ("retry_after_s", "pauses_s"),
    [(None, [1.0, 2.0, 4.0, 8.0]), (60.0, [60.0, 120.0, 240.0, 300.0]), (500.0, [300.0])],
)
def test_a_claim_pauses_twice_as_long_each_time_it_is_given_up(
    retry_after_s: float | None, pauses_s: list[float]
):
    error = StorageError(Reason.QUOTA_EXCEEDED, "full", retry_after_s=retry_after_s)

    assert [pause_s(error, before, 300.0) for before in range(len(pauses_s))] == pauses_s


def test_a_request_that_was_cut_off_may_have_been_carried_out():
    assert after_cancel(FRESH) == replace(FRESH, uncertain=True)


@pytest.mark.parametrize(
    "reason",
    [
        Reason.THROTTLED,
        Reason.UNREACHABLE,
        Reason.CREDENTIALS_INVALID,
        Reason.TIMED_OUT,
        Reason.NOT_LEADING,
    ],
)
@pytest.mark.parametrize("uncertain", [False, True])
def test_a_request_that_ec2_did_not_look_at_is_sent_again_and_nothing_new_is_known(
    reason, uncertain
):
    attempt = replace(FRESH, uncertain=uncertain)

    verdict = after_failure(attempt, an_ec2_error(reason), 101.0)

    assert isinstance(verdict, Continue)
    assert verdict.attempt == attempt


@pytest.mark.parametrize(
    ("reason", "choose_again"),
    [
        (Reason.ZONE_OUT_OF_CAPACITY, True),
        (Reason.TYPE_NOT_IN_ZONE, True),
        (Reason.ZONE_NOT_FOUND, True),
        (Reason.PERMISSION_DENIED, False),
        (Reason.KEY_UNUSABLE, False),
        (Reason.INVALID_REQUEST, False),
    ],
)
def test_a_clear_no_ends_the_attempt_and_only_the_zone_is_chosen_again(
    reason, choose_again
):  # race 5
    error = an_ec2_error(reason)

    assert after_failure(FRESH, error, 101.0) == GiveUp(error, choose_again=choose_again)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        pytest.param(
            replace(FRESH, uncertain=True), Reason.ZONE_OUT_OF_CAPACITY, id="after a lost reply"
        ),
        pytest.param(
            replace(FRESH, token_number=2), Reason.INVALID_REQUEST, id="after a burned token"
        ),
        pytest.param(FRESH, Reason.TOKEN_MISMATCH, id="race 4: the token names another request"),
        pytest.param(FRESH, Reason.QUOTA_EXCEEDED, id="the quota is checked before the token"),
        pytest.param(
            inherited(FRESH, 60.0),
            Reason.ZONE_OUT_OF_CAPACITY,
            id="a process before us may have been given a volume",
        ),
    ],
)
def test_a_no_that_does_not_prove_that_there_is_nothing_is_followed_by_look_ups(attempt, reason):
    error = an_ec2_error(reason)

    verdict = after_failure(attempt, error, 101.0)

    assert isinstance(verdict, Continue)
    assert verdict.attempt.looking_since_s == 101.0
    assert verdict.attempt.refusal is error
    assert next_step(verdict.attempt, None, None) == LookUp()


def test_a_volume_found_by_its_tag_is_taken():
    found = a_volume(state=VolumeState.CREATING)

    attempt = after_look_up(LOOKING, [found], 101.0)

    assert attempt == replace(FRESH, volume=found, is_shown=True)


def test_of_several_volumes_found_the_healthy_one_is_taken_and_always_the_same():
    failed = a_volume("vol-1", state=VolumeState.ERROR)
    dying = a_volume("vol-0", state=VolumeState.DELETING)
    one, two = a_volume("vol-2"), a_volume("vol-3")

    for order in ([failed, two, one, dying], [one, dying, two, failed]):
        attempt = after_look_up(LOOKING, order, 101.0)
        assert isinstance(attempt, Attempt)
        assert attempt.volume == one


@pytest.mark.parametrize("state", [VolumeState.DELETING, VolumeState.DELETED])
def test_a_volume_that_goes_is_no_find(state):
    assert after_look_up(LOOKING, [a_volume(state=state)], 101.0) is LOOKING


def test_an_empty_look_up_proves_nothing_within_a_minute():
    assert after_look_up(LOOKING, [], LOOKING.started_at_s + CONSISTENCY_S - 0.1) is LOOKING


def test_look_ups_that_stay_empty_for_a_minute_end_a_refused_attempt():
    assert after_look_up(LOOKING, [], 160.0) == GiveUp(REFUSED, choose_again=False)


def test_look_ups_that_stay_empty_let_the_zone_be_chosen_again():  # race 5
    no_room = an_ec2_error(Reason.ZONE_OUT_OF_CAPACITY)
    attempt = replace(LOOKING, uncertain=True, refusal=no_room)

    assert after_look_up(attempt, [], 160.0) == GiveUp(no_room, choose_again=True)


def test_look_ups_that_stay_empty_after_a_burned_token_lead_to_the_next_one():
    attempt = replace(LOOKING, refusal=an_ec2_error(Reason.TOKEN_MISMATCH))

    following = after_look_up(attempt, [], 160.0)

    assert isinstance(following, Attempt)
    assert following.is_clear
    assert_begins_anew_under_token_2(replace(following, is_clear=False))


def test_look_ups_after_another_controller_are_followed_by_asking():
    attempt = replace(FRESH, looking_since_s=100.0)

    assert after_look_up(attempt, [], 159.0) is attempt
    following = after_look_up(attempt, [], 160.0)
    assert isinstance(following, Attempt)
    assert next_step(following, None, None) == Send()


def test_an_attempt_that_was_not_looking_begins_to():
    assert after_look_up(FRESH, [], 1000.0) is FRESH


@given(attempts, st.none() | volumes, st.none() | st.floats(0, 200))
def test_every_attempt_has_a_next_step(attempt, seen, missing_for_s):
    step = next_step(attempt, seen, missing_for_s)

    if attempt.volume is None:
        assert step == (Send() if attempt.looking_since_s is None else LookUp())
    if isinstance(step, Save):
        assert step.volume.size_gib >= 1 or attempt.volume.size_gib >= 1
    if isinstance(step, Discard):
        assert step.then.next_token == attempt.token_number + 1
        assert not step.then.choose_again
    if isinstance(step, GiveUp):
        assert step.next_token == attempt.token_number + 1


@given(attempts, st.builds(an_ec2_error, reasons, outcomes))
def test_nothing_is_given_up_while_a_volume_may_exist(attempt, error):
    verdict = after_failure(attempt, error, 101.0)

    assert verdict.error is error
    if isinstance(verdict, GiveUp):
        assert not attempt.uncertain
        assert error.outcome is Outcome.NOTHING
    elif attempt.uncertain:
        assert verdict.attempt.uncertain


@given(attempts, st.lists(volumes, max_size=3), st.floats(0, 300))
def test_every_look_up_has_a_meaning(attempt, found, now_s):
    answer = after_look_up(attempt, found, now_s)

    since_s = now_s if attempt.looking_since_s is None else attempt.looking_since_s
    if isinstance(answer, GiveUp) or answer.token_number > attempt.token_number:
        assert now_s - since_s >= CONSISTENCY_S
    elif answer.volume is not attempt.volume:
        assert answer.volume in found


def assert_begins_anew_under_token_2(attempt: Attempt) -> None:
    assert attempt == Attempt(plan=FRESH.plan.with_token(2), started_at_s=100.0, token_number=2)
    assert attempt.plan.request.client_token == client_token(f"pvc-{UID}", 2)


def test_an_old_token_is_not_trusted_where_a_volume_may_exist():
    lost = replace(FRESH, uncertain=True)
    late_s = FRESH.started_at_s + TOKEN_LIFE_S

    assert not is_token_old(lost, late_s)
    assert is_token_old(lost, late_s + 1)
    assert not is_token_old(FRESH, late_s + 1)
    assert next_step(look_up_first(lost, late_s + 1), None, None) == LookUp()


def test_look_ups_that_stay_empty_make_a_new_request_safe():
    looking = look_up_first(replace(FRESH, uncertain=True), 1_000.0)

    again = after_look_up(looking, [], 1_000.0 + CONSISTENCY_S)

    assert again == FRESH


@pytest.mark.parametrize(
    ("claim_age_s", "is_old"), [(60.0, False), (TOKEN_LIFE_S + 1, True), (math.inf, True)]
)
def test_what_a_process_before_may_have_sent_is_as_old_as_the_claim_until_nothing_came_of_it(
    claim_age_s: float, *, is_old: bool
):
    found = inherited(FRESH, claim_age_s)
    now_s = FRESH.started_at_s

    assert found.uncertain
    assert is_token_old(found, now_s) is is_old
    looking = look_up_first(found, now_s)
    assert after_look_up(looking, [], now_s + CONSISTENCY_S) == FRESH

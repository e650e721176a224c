"""The races of the Kubernetes contract (§8), and the tests that show what becomes of each.

A name that no longer exists fails here, so the table cannot rot.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WALK = "cluster/test_crash_walk.py::test_a_crash_at_any_request_loses_and_doubles_nothing"
LOST = "cluster/test_crash_walk.py::test_a_lost_reply_to_any_request_loses_and_doubles_nothing"

RACES: dict[int, tuple[str, ...]] = {
    # A crash between CreateVolume and the persistent volume leaves no orphan.
    1: (
        WALK,
        "cluster/test_kill.py::test_claims_deleted_while_it_lies_dead_leave_only_what_their_class_retains",
        "controller/deleting/test_orphan_rules.py::test_only_a_tagged_volume_that_nobody_knows_is_ever_touched",
    ),
    # A claim deleted during an uncertain create: finish, save, be released, delete.
    2: (
        "cluster/test_bad_input.py::test_a_claim_deleted_half_way_leaves_nothing",
        "controller/provisioning/test_flow.py::test_what_was_sent_is_carried_on_whatever_becomes_of_its_reasons",
        "controller/provisioning/test_creation_rules.py::test_nothing_is_given_up_while_a_volume_may_exist",
    ),
    # Prerequisites that vanish half-way do not abandon what was sent.
    3: (
        "cluster/test_bad_input.py::test_a_class_deleted_half_way_does_not_stop_what_was_sent",
        "controller/provisioning/test_flow.py::test_what_was_sent_is_carried_on_whatever_becomes_of_its_reasons",
        "controller/provisioning/test_plan_rules.py::test_the_same_claim_gives_the_same_request_whatever_else_changes",
    ),
    # Another selected node while a create is under way: the old zone first.
    4: (
        "controller/provisioning/test_flow.py::test_what_was_sent_is_carried_on_whatever_becomes_of_its_reasons",
        "controller/provisioning/test_flow.py::test_the_zone_is_written_down_before_ec2_hears_of_it",
        "controller/provisioning/test_persistent_volume_rules.py::test_the_zone_is_the_one_where_the_volume_really_is",
        "controller/provisioning/test_creation_rules.py::test_a_no_that_does_not_prove_that_there_is_nothing_is_followed_by_look_ups",
    ),
    # Rescheduled only when nothing is being made, and never over the scheduler's newer choice.
    5: (
        "cluster/test_bad_input.py::test_a_chosen_node_that_has_vanished_is_chosen_anew",
        "controller/provisioning/test_flow.py::test_another_choice_of_the_scheduler_is_never_overwritten",
        "controller/provisioning/test_flow.py::test_a_choice_made_meanwhile_in_another_zone_is_tried_when_the_old_zone_is_full",
        "controller/provisioning/test_creation_rules.py::test_look_ups_that_stay_empty_let_the_zone_be_chosen_again",
        "controller/placement/test_failover_anything.py::test_a_claim_never_has_two_volumes_and_gets_one_in_the_end",
        WALK,
    ),
    # "Already exists" is success only for our own claim and volume.
    6: (
        "controller/provisioning/test_persistent_volume_rules.py::test_an_object_that_is_there_already_is_ours_if_claim_and_volume_are",
        "controller/provisioning/test_persistent_volume_rules.py::test_a_foreign_object_of_our_name_is_told",
        LOST,
    ),
    # Too small: deleted first. Not available yet: waited for.
    7: (
        "controller/provisioning/test_creation_rules.py::test_a_volume_that_is_too_small_is_deleted_first",
        "controller/provisioning/test_creation_rules.py::test_a_volume_on_its_way_is_waited_for",
    ),
    # A claim made anew under its name is another claim.
    8: (
        "cluster/test_stale_caches.py::test_a_claim_made_anew_behind_the_caches_back_gets_a_volume_of_its_own",
        "controller/provisioning/test_plan_rules.py::test_a_claim_made_anew_under_its_name_gives_another_volume",
        "controller/deleting/test_rules.py::test_only_the_very_object_that_was_proposed_can_confirm",
    ),
    # No volume is deleted under an attachment, and the end of that attachment is not missed.
    9: (
        "cluster/test_stale_caches.py::test_a_volume_is_not_deleted_under_an_attachment_that_the_cache_lacks",
        "cluster/test_bad_attachments.py::test_a_volume_is_not_deleted_while_an_attachment_names_it",
        "controller/deleting/test_flow.py::test_a_deletion_that_the_last_look_contradicts_is_not_sent",
        "controller/deleting/test_looks.py::test_what_was_accepted_before_a_deletion_had_its_turn_protects_the_volume",
        "kube/test_catch_up.py::test_where_the_watch_shows_changes_soon_nothing_is_listed",
    ),
    # A detach whose persistent volume was removed by force.
    10: (
        "cluster/test_bad_attachments.py::test_a_volume_is_detached_although_its_persistent_volume_was_removed_by_force",
        "controller/attaching/test_detach_rules.py::test_the_record_alone_is_enough",
    ),
    # A node made anew under its name is another instance.
    11: (
        "cluster/test_bad_attachments.py::test_a_volume_is_detached_from_the_instance_that_had_the_nodes_name_before",
        "controller/attaching/test_detach_rules.py::test_what_was_recorded_at_attach_wins_over_what_is_there_now",
        "controller/attaching/test_rules.py::test_the_instance_is_the_one_that_is_registered_now",
    ),
    # An attachment made anew under its name is another attachment.
    12: (
        "cluster/test_bad_attachments.py::test_a_late_answer_for_an_attachment_never_reaches_the_one_made_anew",
        "controller/attaching/test_rules.py::test_an_update_that_matters_calls_for_a_look",
    ),
    # Nothing is let go before EC2 has confirmed the detach.
    13: (
        "controller/attaching/test_detach_rules.py::test_an_attachment_is_let_go_only_when_the_volume_is_off",
        "controller/attaching/test_detach_rules.py::test_a_deleted_attachment_is_detached_whatever_its_status_says",
        "cluster/test_ec2_says_no.py::test_a_detachment_that_hangs_is_told_and_ends_once_the_instance_lets_go",
        WALK,
    ),
    # The device that EC2 really gave; two attaches never take the same.
    14: (
        "controller/attaching/test_rules.py::test_the_device_that_ec2_shows_is_reported",
        "ec2/test_devices.py::test_two_volumes_on_their_way_get_different_names",
        "ec2/test_devices.py::test_after_a_restart_an_attached_volume_keeps_the_name_that_ec2_shows",
    ),
    # Refused before anything is held: node or persistent volume on its way out.
    15: (
        "controller/attaching/test_rules.py::test_an_attachment_that_cannot_be_is_refused_before_anything_is_held",
        "cluster/test_bad_attachments.py::test_a_volume_attached_by_hand_elsewhere_is_attached_once_it_is_free",
    ),
    # Finalizers of others are never written back; both of ours go at once.
    16: (
        "controller/deleting/test_flow.py::test_both_finalizers_go_by_what_the_delete_answered_not_by_the_cache",
        "controller/deleting/test_rules.py::test_both_finalizers_of_ours_are_removed_at_once",
    ),
    # After DELETE its answer counts, not the cache.
    17: (
        "controller/deleting/test_flow.py::test_both_finalizers_go_by_what_the_delete_answered_not_by_the_cache",
        "controller/deleting/test_flow.py::test_an_object_that_is_gone_when_its_volume_is_deleted_is_done",
    ),
    # Deleting twice is harmless.
    18: (
        WALK,
        "controller/deleting/test_rules.py::test_a_deletion_is_not_confirmed_when_the_live_object_is",
        "ec2/test_volumes.py::test_deleting_what_is_not_there_is_done",
    ),
    # A policy changed to Retain in the last moment keeps the volume.
    19: (
        "cluster/test_stale_caches.py::test_a_volume_is_kept_when_its_policy_has_changed_since_the_cache_saw_it",
        "cluster/test_bad_attachments.py::test_a_policy_changed_to_retain_in_the_last_moment_keeps_the_volume",
    ),
    # Attribute classes: such claims are refused until they can be honoured.
    20: (
        "controller/provisioning/test_plan_rules.py::test_what_can_never_be_made_is_said_once_and_not_tried_again",
        "cluster/test_bad_input.py::test_what_is_not_possible_is_told_once_and_never_made",
    ),
    # Never a capacity below the request.
    21: (
        "controller/provisioning/test_persistent_volume_rules.py::test_the_capacity_is_never_less_than_what_the_claim_asks_for",
        "controller/provisioning/test_plan_rules.py::test_sizes_round_up_to_gib",
    ),
    # The echo of an own write resets no backoff.
    22: (
        "controller/attaching/test_rules.py::test_the_echo_of_our_own_message_does_not",
        "kube/test_store.py::test_the_echo_of_an_own_write_is_told_once",
        "kube/test_queue.py::test_a_handler_that_wakes_itself_and_fails_is_slowed_down",
    ),
    # Without the lease nothing is changed any more.
    28: (
        "ec2/test_fence.py::test_nothing_is_changed_once_another_may_lead",
        "ec2/test_fence.py::test_the_leases_are_looked_at_after_the_wait_for_a_turn",
        "cluster/test_leases.py::test_a_holder_that_was_stopped_too_long_ends_before_it_changes_anything",
    ),
    # "Not in the cache" is not "not there".
    29: (
        "controller/shared/test_caches.py::test_nothing_is_decided_before_every_kind_was_listed",
        "controller/shared/test_caches.py::test_what_is_not_in_a_cache_is_asked_for_before_it_counts_as_gone",
        "cluster/test_stale_caches.py::test_a_volume_lives_its_life_once_however_late_its_changes_are_seen",
        "kube/test_informer.py::test_a_watch_too_far_behind_lists_again_and_tells_the_difference",
    ),
    # A detach interrupts the wait of an attach.
    30: (
        "controller/attaching/test_detach_rules.py::test_a_deleted_attachment_is_detached_whatever_its_status_says",
        "cluster/test_bad_attachments.py::test_an_attachment_deleted_while_it_waits_for_ec2_is_detached",
        "kube/test_queue.py::test_an_event_wakes_a_waiting_key",
        "controller/attaching/test_turns.py::test_the_deletion_of_an_attachment_ends_its_attach_s_wait_for_its_turn",
        "controller/attaching/test_turns.py::test_deletions_among_hundreds_of_attaches_at_the_documented_quota_take_seconds",
    ),
    # One bucket per action; retries grow apart.
    31: (
        "ec2/test_limiter.py::test_300_creates_at_the_documented_quota_take_hardly_longer_than_aws_allows",
        "kube/test_queue.py::test_failures_wait_twice_as_long_each_time_up_to_a_cap",
    ),
    # Resizing: the target is written first, the persistent volume before the claim, then the node.
    23: (
        WALK,
        "controller/modifying/test_flow.py::test_a_file_system_is_left_to_kubelet_once_the_volume_has_grown",
        "controller/modifying/test_faults.py::test_a_crash_anywhere_costs_no_second_modification",
        "controller/modifying/test_restarts.py::test_a_size_that_was_refused_is_corrected_after_a_restart",
        "cluster/test_modification_limits.py::test_optimizing_for_hours_is_success_and_the_next_wish_waits",
        "cluster/test_modification_limits.py::test_what_ec2_says_of_its_own_limit_wins_and_is_not_run_against",
    ),
    # Kubelet writes at the same time, conditions have other owners, and claims go.
    24: (
        "controller/modifying/test_faults.py::test_kubelet_and_others_write_in_between_and_nobody_hears_of_conflicts",
        "controller/modifying/test_faults.py::test_a_condition_of_somebody_else_stays",
        "cluster/test_grow.py::test_a_claim_deleted_while_its_volume_grows_is_no_trouble",
    ),
    # Modifying: the target stays while its effect is open; it can be taken back; both names are kept.
    25: (
        "controller/modifying/test_faults.py::test_what_never_reached_ec2_is_sent_again_once_ec2_would_have_shown_it",
        "controller/modifying/test_restarts.py::test_a_class_that_only_waited_is_taken_back_after_a_restart",
        "cluster/test_change_refused.py::test_the_way_back_from_a_class_that_cannot_be",
        "cluster/test_change.py::test_a_class_changes_iops_throughput_and_tags_by_one_modification",
    ),
    # Snapshots: announced before they are taken, never deleted where they are retained.
    26: (
        WALK,
        "controller/snapshotting/test_flow.py::test_the_annotation_is_there_before_ec2_is_asked",
        "controller/snapshotting/test_ends.py::test_a_snapshot_in_doubt_is_found_before_its_content_may_go",
        "controller/snapshotting/test_ends.py::test_a_policy_that_becomes_retain_at_the_last_moment_is_heeded",
        "controller/snapshotting/test_content_rules.py::test_a_snapshot_object_that_is_gone_is_enough_for_the_end",
        "controller/snapshotting/test_content_patch_rules.py::test_the_status_names_the_snapshot_in_nanoseconds_and_bytes",
    ),
    # The finalizers of sources: by all that is needed, never by a list that failed.
    27: (
        "controller/sources/test_finalizers.py::test_a_finalizer_stays_while_a_volume_is_made_for_a_claim_that_is_gone",
        "controller/sources/test_finalizers.py::test_a_clone_that_comes_while_a_finalizer_is_taken_off_puts_it_on_again",
        "controller/sources/test_finalizers.py::test_after_a_conflict_it_is_decided_anew_whether_a_finalizer_comes_off",
    ),
    # Migrated volumes are told by their source.
    32: (
        "controller/attaching/test_rules.py::test_the_volume_is_found_in_every_form",
        "controller/deleting/test_rules.py::test_the_volume_of_a_released_object_with_policy_delete_goes",
        "classes/test_in_tree_rules_persistent_volume.py::test_the_persistent_volume_is_saved_in_the_plugins_form",
    ),
    # What may be left out: volumeMode, reclaimPolicy.
    33: (
        "controller/provisioning/test_persistent_volume_rules.py::test_a_raw_device_has_no_file_system",
        "controller/provisioning/test_plan_rules.py::test_a_class_without_a_reclaim_policy_means_delete",
        "controller/provisioning/test_plan_rules.py::test_the_file_system",
    ),
    # Nothing is begun for a claim that goes; what was sent is finished.
    34: (
        "controller/provisioning/test_plan_rules.py::test_nothing_is_done_for_a_claim_that",
        "cluster/test_bad_input.py::test_a_claim_deleted_before_anything_was_sent_is_never_provisioned",
        "cluster/test_bad_input.py::test_a_claim_deleted_half_way_leaves_nothing",
    ),
}


@functools.cache
def names_of_tests(file: str) -> frozenset[str]:
    """The tests that pytest would collect from a file, by its syntax alone."""
    tree = ast.parse((HERE / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(e.name for e in tree.body if isinstance(e, kinds) and e.name[:5] == "test_")


@pytest.mark.parametrize("race", RACES)
def test_each_race_is_shown_by_tests_that_exist(race: int):
    assert RACES[race]
    for node_id in RACES[race]:
        file, _, name = node_id.partition("::")
        assert name in names_of_tests(file), f"race {race}: there is no tests/{node_id}"


def test_every_race_of_the_contract_is_in_the_table():
    assert sorted(RACES) == list(range(1, 35))

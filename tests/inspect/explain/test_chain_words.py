"""How an explanation is printed, and what the command refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from click.testing import CliRunner

from provisioner.inspect.commands import ebs
from provisioner.inspect.explain import reason_rules, target_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Explanation, Link, Proof
from provisioner.inspect.explain.printing import chain_words
from provisioner.inspect.explain.printing.cause_words import MEANING, REMEDY
from provisioner.inspect.explain.printing.event_words import EVENTS
from provisioner.model.errors import Reason
from provisioner.model.reasons import ADVICE
from tests.inspect.explain.views import claim_view, refused, said, view

MISSING = Chain(
    (
        Link(
            Reason.CLASS_NOT_FOUND,
            "StorageClass fast does not exist.",
            Proof("pvc shop/data, spec.storageClassName", "fast"),
            next="you",
            remedy="Create it.",
            command="kubectl get storageclass",
        ),
        Link(Cause.NOT_SCHEDULED, "So the pod is not scheduled.", Proof("pod", "Pending")),
    )
)


def printed(*chains: Chain, width: int = 60) -> list[str]:
    return list(chain_words.lines(Explanation("pod shop/web-0", chains), width=width))


def test_the_first_cause_comes_first_with_its_proof_and_what_helps():
    assert printed(MISSING) == [
        "pod shop/web-0 does not work: ClassNotFound",
        "",
        "1. StorageClass fast does not exist.",
        "   [pvc shop/data, spec.storageClassName: fast]",
        "",
        "2. So the pod is not scheduled.",
        "   [pod: Pending]",
        "",
        "next: you",
        "what helps: Create it.",
        "   kubectl get storageclass",
    ]


def test_two_causes_are_counted():
    lines = printed(MISSING, MISSING)
    assert [each for each in lines if each.startswith("pod shop/web-0")] == [
        "pod shop/web-0 does not work: ClassNotFound, 1 of 2",
        "pod shop/web-0 does not work: ClassNotFound, 2 of 2",
    ]


@pytest.mark.parametrize("width", [30, 60, 100])
def test_sentences_fit_the_terminal(width: int):
    found = target_rules.explain(view(claims=(claim_view(said=(refused(Reason.QUOTA_EXCEEDED),)),)))
    lines = chain_words.lines(found, width=width)
    # Names and commands are not broken.
    assert all(len(each) <= width or " " not in each.strip() or "aws " in each for each in lines)


def test_a_healthy_object_is_one_line_with_its_facts():
    found = target_rules.explain(view())
    (line,) = chain_words.lines(found, width=200)
    assert line.startswith("nothing is wrong with pvc shop/data (volume of data: vol-")


def test_what_was_not_read_is_no_all_clear():
    found = view(unread=frozenset({"list events", "EC2"}))
    text = " ".join(chain_words.lines(target_rules.explain(found), width=300))
    assert text.startswith("nothing found that is wrong with pvc shop/data; not read: EC2, list ev")


def test_what_a_terminal_would_obey_is_escaped():
    link = Link(Cause.NOT_MOUNTED, "a\x1b[2Jb", Proof("c\x07", "d"), command="e\x1b")
    assert not any("\x1b" in each or "\x07" in each for each in printed(Chain((link,))))


def test_the_same_for_programs():
    found = chain_words.as_json(Explanation("pod shop/web-0", (MISSING,), (("phase", "Pending"),)))
    assert found["wrong"] is True
    assert found["facts"] == {"phase": "Pending"}
    assert [each["cause"] for each in found["chains"][0]["links"]] == [
        "ClassNotFound",
        "PodNotScheduled",
    ]


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(ebs, ["explain", *words])
    return result.exit_code, result.output


def test_each_reason_can_be_explained():
    assert ADVICE.keys() == set(Reason)
    code, text = run("reason", "quotaexceeded")
    assert code == 0
    assert text.startswith("QuotaExceeded\n   A quota of the account is used up.")


def test_each_cause_can_be_explained():
    assert MEANING.keys() == set(Cause)
    code, text = run("reason", "NodesFull")
    assert code == 0
    assert "take no more volumes." in text


def test_each_cause_has_its_own_remedy():
    assert REMEDY.keys() == set(Cause)
    code, text = run("reason", "NodesFull")
    assert code == 0
    assert "what helps: Add a node" in text


@pytest.mark.parametrize(
    "name",
    [
        *("ProvisioningFailed", "FailedMount", "FailedAttachVolume", "failedscheduling"),
        *("VolumeResizeFailed", "InstanceUnknown", "SnapshotCreationFailed"),
    ],
)
def test_the_reason_of_an_event_can_be_explained(name: str):
    code, text = run("reason", name)
    assert code == 0
    assert "what helps: " in " ".join(text.split())


def test_an_event_has_no_reason_that_stands_in_its_message():
    assert not EVENTS.keys() & {each.value for each in (*Reason, *Cause)}


def test_a_text_without_a_known_reason_says_who_acts_and_where_to_look():
    event = said("no such thing", by="kubelet")
    link = reason_rules.link_of(event, Cause.NOT_MOUNTED)
    assert link.next == "kubelet, which tries again"
    assert link.command == "kubectl events -n shop --for pvc/data"
    assert link.remedy
    content = reason_rules.link_of(replace(event, about="content c-1"), Cause.SNAPSHOT_WAITS)
    assert content.command == "kubectl events -n default --for volumesnapshotcontent/c-1"
    written = replace(event, about="pvc shop/$(reboot)")
    assert reason_rules.link_of(written, Cause.NOT_MOUNTED).command == "kubectl events"


def test_a_reason_for_programs():
    code, text = run("reason", "QuotaExceeded", "-o", "json")
    assert (code, json.loads(text)["reason"]) == (0, "QuotaExceeded")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reason"], "name one reason"),
        (["reason", "QuotaExceded"], "did you mean QuotaExceeded?"),
        (["reason", "\x1b[2J"], "unknown reason '\\x1b[2J'"),
        (["pod"], "name one object"),
        (["secret", "x"], "unknown kind 'secret'"),
        (["pv", "a/b"], "a pv has no namespace"),
    ],
)
def test_bad_input_is_one_sentence(words: Sequence[str], message: str):
    code, text = run(*words)
    assert code == 2
    assert message in text


def test_a_cause_has_an_id_that_no_reason_has():
    assert not {each.value for each in Cause} & {each.value for each in Reason}


def test_the_long_name_of_a_volume_attachment_is_written_once():
    name, other = f"csi-{'a' * 64}", f"csi-{'b' * 64}"
    told = Link(
        Cause.ATTACHMENT_STUCK,
        f"VolumeAttachment {name} is being deleted.",
        Proof(f"volumeattachment {name}, metadata.finalizers", "example.com/hold"),
        command=f"kubectl get volumeattachment {name}",
    )
    after = Link(Cause.NOT_ATTACHED, "So.", Proof(f"volumeattachment {other}", "none"))

    text = "\n".join(printed(Chain((told, after)), width=400))

    assert "[that VolumeAttachment, metadata.finalizers: example.com/hold]" in text
    assert f"[volumeattachment {other}: none]" in text
    assert text.count(name) == 2
    assert text.endswith(f"kubectl get volumeattachment {name}")


def test_a_node_that_is_full_does_not_wait():
    full = Link(Cause.NODE_LIMIT, "It is full.", Proof("csinode node-1", "limit 1, attached 1"))
    found = Explanation("node node-1", (Chain((full,), waits=True),))
    (first, *_) = chain_words.lines(found, width=80)
    assert first == "node node-1 is full: VolumeLimitReached"


def test_a_persistent_volume_is_created_again_only_once_its_volume_is_kept():
    told = reason_rules.remedy(Reason.ZONE_MISMATCH)

    assert 0 < told.index("Retain") < told.index("deleted with")

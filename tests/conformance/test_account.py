"""``conformance aws`` from plan to sweep, in an account with other people's volumes."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from provisioner.conformance import account
from provisioner.conformance.journal import Journal, JournalError, stories
from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    CannotRunError,
    Confirmed,
    Finding,
    NotRun,
    Probe,
    Refuted,
    Usage,
)
from provisioner.conformance.report import Report
from provisioner.model.names import CONFORMANCE_RUN
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.conformance.account_world import (
    ATTACHES,
    EVERY,
    MAKES,
    ONE_VOLUME,
    READS,
    SNAPSHOT,
    WRONG,
    Account,
    Listener,
    rule,
)
from tests.sandbox import lab as strict

OTHER_RUN = "20261122t080000-abcdef"
_DENIED = {"do": "error", "code": "UnauthorizedOperation", "http_status": 403, "n": 10_000}


def changing(counts: dict[str, int]) -> set[str]:
    return {action for action, number in counts.items() if number and "Describe" not in action}


async def ran(owned: Account, listener: Listener, order: account.Order | None = None) -> Report:
    report = await account.run(order or owned.order(), listener.terminal)
    assert report is not None
    return report


async def test_a_run_confirms_its_rules_and_leaves_nothing(owned: Account, listener: Listener):
    report = await ran(owned, listener)

    assert [type(report.finding(each)) for each in EVERY] == [Confirmed] * len(EVERY)
    assert report.exit_status == 0
    assert owned.made() == set()
    assert listener.findings.keys() == {each.name for each in EVERY}


async def test_a_run_says_what_is_refuted(owned: Account, listener: Listener):
    report = await ran(owned, listener, owned.order([READS, WRONG]))

    finding = report.finding(WRONG)
    assert isinstance(finding, Refuted)
    assert "InvalidVolume.NotFound" in finding.seen
    assert report.exit_status == 1


async def test_everything_that_is_made_has_the_tag_of_its_run(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    strict_ec2.control(log=True)
    await ran(owned, listener)

    made = [each for each in strict_ec2.log() if each["action"].startswith("Create")]
    assert len(made) > 5
    for each in made:
        assert each["params"]["TagSpecification.1.Tag.1.Key"] == CONFORMANCE_RUN


async def test_a_plan_makes_nothing(owned: Account, listener: Listener, strict_ec2: StrictEc2):
    strict_ec2.control(reset_counts=True)
    await account.planned(owned.order(), listener.terminal)

    assert changing(strict_ec2.counts()) == set()
    assert "5 probes will run" in listener.text
    assert "Cost: at most $0.0" in listener.text
    assert "us-east-1" in listener.text


async def test_a_run_above_the_budget_makes_nothing(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    strict_ec2.control(reset_counts=True)
    with pytest.raises(CannotRunError, match=r"may cost \$0\.\d+, and --budget-usd allows"):
        await ran(owned, listener, owned.order(budget_usd=0.000001))

    assert changing(strict_ec2.counts()) == set()
    assert list(stories(owned.folder)) == []


async def test_a_run_that_nobody_agrees_to_makes_nothing(owned: Account, listener: Listener):
    listener.answer = False

    assert await account.run(owned.order(), listener.terminal) is None
    assert list(stories(owned.folder)) == []
    assert owned.made() == set()


# -- rights


@pytest.mark.parametrize(
    ("action", "missing"),
    [
        ("CreateSnapshot", {SNAPSHOT.name}),
        ("AttachVolume", {ATTACHES.name}),
        ("CreateVolume", {each.name for each in EVERY} - {READS.name}),
    ],
)
async def test_a_probe_without_rights_is_not_run_and_never_confirmed(
    owned: Account, listener: Listener, strict_ec2: StrictEc2, action: str, missing: set[str]
):
    strict_ec2.control(faults=[{"action": action, **_DENIED}])
    report = await ran(owned, listener)

    not_run = {
        each.name: finding.why
        for each in EVERY
        if isinstance(finding := report.finding(each), NotRun)
    }
    assert not_run.keys() == missing
    assert all(f"ec2:{action} is not allowed" in why for why in not_run.values())
    assert report.finding(READS) == Confirmed("EC2 answered InvalidVolume.NotFound")
    assert owned.made() == set()


async def test_a_right_that_is_lacking_for_a_probe_alone_leaves_the_others(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    async def modifies(lab: Lab) -> Finding:
        await lab.call("modify_volume", VolumeId=await lab.volume(), Size=2)
        return Confirmed("it was modified")

    modifying = rule("modifies", Probe(modifies, ("ModifyVolume",), ONE_VOLUME))
    strict_ec2.control(faults=[{"action": "ModifyVolume", **_DENIED}])
    report = await ran(owned, listener, owned.order([modifying, MAKES]))

    assert isinstance(report.finding(MAKES), Confirmed)
    assert report.finding(modifying) == NotRun(
        "ec2:ModifyVolume is not allowed to these credentials (UnauthorizedOperation)"
    )
    assert report.exit_status == 0


async def test_who_may_create_and_not_delete_makes_one_volume_only(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    strict_ec2.control(faults=[{"action": "DeleteVolume", **_DENIED}])
    report = await ran(owned, listener, owned.order([MAKES, READS]))

    (left,) = owned.made()
    assert report.exit_status == 2
    assert left in report.left
    assert "ec2:DeleteVolume is not allowed" in report.left[left]
    assert "cannot be deleted, so nothing else is made" in report.stopped
    assert isinstance(report.finding(MAKES), NotRun)
    strict_ec2.control(faults=None)
    assert await account.sweep_all(owned.order(), listener.terminal, "") == 0
    assert owned.made() == set()


# -- the place


async def test_a_region_without_a_volume_type_is_no_refutation(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    none = [{"zone": "*", "type": "gp3", "code": "UnknownVolumeType"}]
    strict_ec2.control(capacity=none)
    report = await ran(owned, listener, owned.order([MAKES, READS]))

    finding = report.finding(MAKES)
    assert isinstance(finding, NotRun)
    assert "UnknownVolumeType" in finding.why
    assert isinstance(report.finding(READS), Confirmed)
    assert owned.made() == set()


async def test_a_zone_without_any_volume_stops_a_run(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    none = [{"zone": "*", "type": "*", "code": "InsufficientVolumeCapacity"}]
    strict_ec2.control(capacity=none)
    report = await ran(owned, listener, owned.order([MAKES]))

    assert "EC2 makes no volume in us-east-1a" in report.stopped
    assert report.exit_status == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"zone": "us-east-1x", "instances": []}, "has no available zone us-east-1x"),
        ({"zone": "us-east-1b"}, "is in us-east-1a, not in us-east-1b"),
        ({"instances": ["i-00000000000000001"]}, "the instance i-00000000000000001"),
        ({"instances": ["none"]}, "the instance none"),
        ({"instances": ["none", "none"]}, "none is named twice"),
    ],
)
async def test_a_place_that_is_not_there_is_one_sentence(
    owned: Account, listener: Listener, changes: dict[str, Any], says: str
):
    with pytest.raises(CannotRunError, match=says):
        await ran(owned, listener, owned.order(**changes))


async def test_a_stopped_instance_is_refused(owned: Account, listener: Listener):
    owned.ec2.stop_instances(InstanceIds=[owned.instance])

    with pytest.raises(CannotRunError, match="probes need a running one"):
        await ran(owned, listener)


async def test_without_an_instance_its_probes_are_not_run(owned: Account, listener: Listener):
    report = await ran(owned, listener, owned.order([ATTACHES, READS], instances=[]))

    assert report.finding(ATTACHES) == NotRun(
        "it needs a running instance: name one with --instance"
    )
    assert report.exit_status == 0


async def test_a_probe_of_two_instances_runs_only_with_both(owned: Account, listener: Listener):
    async def both(lab: Lab) -> Finding:
        return Confirmed(f"{lab.instance} and {lab.other_instance}")

    needs = Usage(needs_instance=True, needs_other=True)
    probe = rule("both", Probe(both, (), needs))
    report = await ran(owned, listener, owned.order([probe, READS]))
    assert report.finding(probe) == NotRun(
        "it needs two running instances in one zone: give --instance twice"
    )
    assert "1 probes will run" in listener.text

    second = strict.Lab(owned.ec2, lambda **_: None).instance()
    order = owned.order([probe], instances=[owned.instance, second])
    report = await ran(owned, listener, order)
    assert report.finding(probe) == Confirmed(f"{owned.instance} and {second}")
    assert f"{owned.instance} and {second}" in listener.text


async def test_two_instances_of_two_zones_are_refused(owned: Account, listener: Listener):
    hand = strict.Lab(owned.ec2, lambda **_: None)
    second = hand.instance(zone="us-east-1b")
    with pytest.raises(CannotRunError, match=f"{second} is in us-east-1b, not in us-east-1a"):
        await ran(owned, listener, owned.order(instances=[owned.instance, second]))


async def test_a_device_name_of_the_instance_is_never_used(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    strict_ec2.control(log=True)
    await ran(owned, listener, owned.order([ATTACHES]))

    used = {e["params"]["Device"] for e in strict_ec2.log() if e["action"] == "AttachVolume"}
    assert used
    assert "/dev/sdf" not in used  # a stranger's volume


# -- endpoints that are none


async def test_without_credentials_there_is_one_sentence(
    owned: Account, listener: Listener, monkeypatch: pytest.MonkeyPatch
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(CannotRunError, match=r"no AWS credentials .*: set AWS_PROFILE"):
        await ran(owned, listener)


async def test_without_a_region_there_is_one_sentence(owned: Account, listener: Listener):
    with pytest.raises(CannotRunError, match="give --region or set AWS_REGION"):
        await ran(owned, listener, owned.order(region=None))


async def test_credentials_that_ec2_refuses_are_one_sentence(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    strict_ec2.control(refused_keys={"AKIAIOSFODNN7EXAMPLE": "InvalidClientTokenId"})
    with pytest.raises(CannotRunError, match="does not accept the credentials: InvalidClientToken"):
        await ran(owned, listener)


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("http://127.0.0.1:9", "the endpoint cannot be reached"),
        ("nonsense", "AWS settings: Invalid endpoint: nonsense"),
    ],
)
async def test_an_endpoint_where_nobody_listens_is_one_sentence(
    owned: Account, listener: Listener, endpoint: str, says: str
):
    with pytest.raises(CannotRunError, match=says):
        await ran(owned, listener, owned.order(endpoint=endpoint))


async def test_an_endpoint_without_tls_is_one_sentence(owned: Account, listener: Listener):
    endpoint = owned.endpoint.replace("http:", "https:")
    with pytest.raises(CannotRunError, match="there is no TLS connection to the endpoint"):
        await ran(owned, listener, owned.order(endpoint=endpoint))


class _Page(BaseHTTPRequestHandler):
    body = b"<html><body>It works!</body></html>"
    status = 200

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[(200, _Page.body), (404, _Page.body), (200, b'{"a": 1}'), (200, b"<a/>")])
def no_ec2(request: pytest.FixtureRequest) -> Iterator[str]:
    status, body = request.param
    page = type("Page", (_Page,), {"status": status, "body": body})
    with HTTPServer(("127.0.0.1", 0), page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_an_endpoint_that_is_no_ec2_is_one_sentence(
    owned: Account, listener: Listener, no_ec2: str
):
    with pytest.raises(CannotRunError, match=r"DescribeAvailabilityZones: .*(no EC2|not EC2's)"):
        await ran(owned, listener, owned.order(endpoint=no_ec2))


# -- probes that misbehave


async def test_a_probe_that_hangs_ends_at_its_deadline(
    owned: Account, listener: Listener, monkeypatch: pytest.MonkeyPatch
):
    async def hangs(lab: Lab) -> Finding:
        await lab.volume()
        await asyncio.sleep(3600)
        return Confirmed("never")

    monkeypatch.setattr(Probe, "deadline_s", property(lambda _: 0.5))
    hanging = rule("hangs", Probe(hangs, ("CreateVolume",), ONE_VOLUME))
    report = await ran(owned, listener, owned.order([hanging, READS]))

    assert report.finding(hanging) == NotRun("it took longer than 0 s")
    assert isinstance(report.finding(READS), Confirmed)
    assert owned.made() == set()


async def test_a_mistake_of_a_probe_is_not_a_refutation(owned: Account, listener: Listener):
    async def mistaken(lab: Lab) -> Finding:
        await lab.volume()
        raise KeyError("x")

    wrong = rule("mistaken", Probe(mistaken, ("CreateVolume",), ONE_VOLUME))
    report = await ran(owned, listener, owned.order([wrong]))

    assert report.finding(wrong) == NotRun("a mistake of the probe: KeyError: 'x'")
    assert report.exit_status == 2
    assert owned.made() == set()


async def test_a_probe_can_change_nothing_of_strangers(owned: Account, listener: Listener):
    volume = next(each for each in owned.strangers if each.startswith("vol-"))
    snapshot = next(each for each in owned.strangers if each.startswith("snap-"))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("delete_volume", {"VolumeId": volume}),
        ("detach_volume", {"VolumeId": volume}),
        ("modify_volume", {"VolumeId": volume, "Size": 100}),
        ("create_tags", {"Resources": [volume], "Tags": [{"Key": "a", "Value": "b"}]}),
        ("terminate_instances", {"InstanceIds": [owned.instance]}),
        ("create_tags", {"Resources": [owned.instance], "Tags": [{"Key": "a", "Value": "b"}]}),
        ("create_tags", {"Resources": [], "Tags": [{"Key": CONFORMANCE_RUN, "Value": "b"}]}),
        ("delete_tags", {"Resources": []}),
        ("create_tags", {"Resources": ["subnet-01234567"], "Tags": [{"Key": "a", "Value": "b"}]}),
        ("create_snapshot", {"VolumeId": volume}),
        ("copy_volumes", {"SourceVolumeId": volume}),
        ("create_volume", {"SnapshotId": snapshot, "AvailabilityZone": "us-east-1a"}),
    ]

    async def tries(lab: Lab) -> Finding:
        for operation, params in calls:
            with pytest.raises(PermissionError):
                await lab.call(operation, **params)
        return Confirmed("all are refused")

    trying = rule("tries", Probe(tries, (), Usage()))
    report = await ran(owned, listener, owned.order([trying]))

    assert report.finding(trying) == Confirmed("all are refused")
    assert owned.made() == set()


# -- more than one run


async def test_two_runs_never_sweep_each_other(owned: Account, listener: Listener):
    other = owned.ec2.create_volume(
        AvailabilityZone="us-east-1a",
        Size=1,
        VolumeType="gp3",
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": CONFORMANCE_RUN, "Value": OTHER_RUN}]}
        ],
    )["VolumeId"]

    with pytest.raises(CannotRunError, match=f"the run {OTHER_RUN}, of another machine"):
        await ran(owned, listener)
    assert await account.sweep_all(owned.order(), listener.terminal, "") == 0
    assert owned.made() == {other}
    assert f"--sweep {OTHER_RUN}" in listener.text
    assert await account.sweep_all(owned.order(), listener.terminal, OTHER_RUN) == 0
    assert owned.made() == set()


async def test_a_second_run_waits_for_the_first(owned: Account, listener: Listener):
    inside, over = asyncio.Event(), asyncio.Event()

    async def waits(lab: Lab) -> Finding:
        volume = await lab.volume()
        inside.set()
        await over.wait()
        return Confirmed((await lab.describe(volume))["State"])

    waiting = rule("waits", Probe(waits, ("CreateVolume",), ONE_VOLUME))
    first = asyncio.create_task(account.run(owned.order([waiting]), Listener().terminal))
    await inside.wait()
    try:
        with pytest.raises(CannotRunError, match="is under way here: wait until it has ended"):
            await ran(owned, listener)
        assert await account.sweep_all(owned.order(), listener.terminal, "") == 0
        assert "still under way" in listener.text
        (run,) = [story.begun.run for story in stories(owned.folder)]
        with pytest.raises(JournalError, match="still under way"):
            await account.resume(owned.order(), listener.terminal, run)
    finally:
        over.set()
    report = await first
    assert report is not None
    assert report.finding(waiting) == Confirmed("available")
    assert owned.made() == set()


# -- interrupted


async def test_ctrl_c_deletes_what_was_made_and_the_rest_is_resumed(
    owned: Account, listener: Listener
):
    inside, calm = asyncio.Event(), False

    async def waits(lab: Lab) -> Finding:
        await lab.attached(await lab.volume())
        inside.set()
        await asyncio.sleep(0 if calm else 3600)
        return Confirmed("at last")

    needs = replace(ONE_VOLUME, needs_instance=True)
    waiting = rule("waits", Probe(waits, ("AttachVolume",), needs, alone=True))
    order = owned.order([MAKES, waiting])
    running = asyncio.create_task(account.run(order, listener.terminal))
    await inside.wait()
    running.cancel()
    report = await running

    assert report is not None
    assert owned.made() == set()
    assert isinstance(report.finding(MAKES), Confirmed)
    assert report.finding(waiting) == NotRun("the run ended before: it was interrupted")
    assert report.exit_status == 2

    calm = True
    listener.findings.clear()
    resumed = await account.resume(order, listener.terminal, "")
    assert resumed is not None
    assert listener.findings.keys() == {"waits"}
    assert resumed.begun.run == report.begun.run
    assert resumed.exit_status == 0
    assert [type(resumed.finding(each)) for each in order.rules] == [Confirmed, Confirmed]
    assert owned.made() == set()
    with pytest.raises(CannotRunError, match="there is nothing to resume"):
        await account.resume(order, listener.terminal, "")


async def test_a_run_that_is_resumed_again_and_again_meets_its_budget(
    owned: Account, listener: Listener
):
    async def dies(lab: Lab) -> Finding:
        await lab.volume()
        raise KeyError("x")

    dying = rule("dies", Probe(dies, ("CreateVolume",), ONE_VOLUME))
    order = owned.order([dying], budget_usd=0.00008)
    report = await ran(owned, listener, order)

    async def again_and_again() -> None:
        for _ in range(20):
            await account.resume(order, listener.terminal, report.begun.run)

    with pytest.raises(CannotRunError, match="--budget-usd allows"):
        await again_and_again()


async def test_a_lost_reply_leaves_nothing_behind(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    lost = {"do": "reset", "when": "after", "n": 1}
    twice = [{"action": "CreateVolume", **lost}, {"action": "CreateSnapshot", **lost}]
    await ran(owned, listener, owned.order([READS]))
    strict_ec2.control(faults=twice)
    report = await ran(owned, listener, owned.order([MAKES, SNAPSHOT]))

    assert "no reply" in report.stopped
    assert owned.made() == set()


async def test_what_shows_late_is_waited_for(
    owned: Account, listener: Listener, strict_ec2: StrictEc2
):
    journal_made: list[str] = []
    real = Journal.making

    async def making(self: Journal, kind: str, operation: str) -> int:
        journal_made.append(kind)
        if len(journal_made) == 2:  # after the rehearsal
            strict_ec2.control(delays={"visible_after_s": 1.0})
        return await real(self, kind, operation)

    async def forgets(lab: Lab) -> Finding:
        await lab.call("create_volume", AvailabilityZone=lab.zone, Size=1, VolumeType="gp3")
        return Confirmed("it was made")

    forgetting = rule("forgets", Probe(forgets, ("CreateVolume",), ONE_VOLUME))
    patience = replace(owned.order().patience, quiet_s=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "making", making)
        await ran(owned, listener, owned.order([forgetting], patience=patience))

    strict_ec2.control(delays={"visible_after_s": 0.0})
    assert owned.made() == set()

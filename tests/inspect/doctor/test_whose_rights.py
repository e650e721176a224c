"""As whom rights are tried: a role that cannot be assumed is a failure, and passes no gate."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from provisioner.inspect.command_line import Readers, Target
from provisioner.inspect.doctor import gather, probes
from provisioner.inspect.doctor.check_rules import Check, Verdict, exit_status
from provisioner.inspect.doctor.command import doctor
from provisioner.inspect.doctor.evidence_rules import ROLE_ANNOTATION
from provisioner.inspect.reading.aws import Aws, _translated
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kinds import SERVICE_ACCOUNTS
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, KubeError, Reason
from provisioner.model.meta import KubeObject
from tests.documents import page
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.account import Account, Ec2, asked
from tests.inspect.doctor.evidence import CLUSTER, SOUND, checked
from tests.inspect.lease_api import LeaseApi

OURS = "ebs-provisioner/ebs-provisioner-controller"
STOCK = "kube-system/ebs-csi-controller-sa"
DENIED = Ec2Error(
    Reason.PERMISSION_DENIED,
    "AccessDenied: User: person is not authorized to perform: sts:AssumeRole",
    action="AssumeRole",
    code="AccessDenied",
)
SILENT = Ec2Error(Reason.UNREACHABLE, "no route to sts", action="AssumeRole")
ROLE = probes.Identity(e.DRIVER, role="arn:role")
BY_TOKEN = probes.Identity(e.DRIVER, as_controller=True, account=OURS)


def account(key: str = OURS, **annotations: str) -> KubeObject:
    namespace, _, name = key.partition("/")
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return e.read(KubeObject, {"metadata": meta})


ANNOTATED = account(**{ROLE_ANNOTATION: "arn:ours"})


class Api(LeaseApi):
    """It has two ServiceAccounts, and gives tokens of them, or not."""

    def __init__(self, refusal: KubeError | None = None) -> None:
        super().__init__()
        self._refusal = refusal

    async def create(self, *_: Any, **__: Any) -> Any:
        if self._refusal is not None:
            raise self._refusal
        return SimpleNamespace(status=SimpleNamespace(token="token"))

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        key = f"{namespace}/{name}"
        if kind is SERVICE_ACCOUNTS and key in (STOCK, OURS):
            return account(key)
        return await super().get(kind, name, namespace)


async def found(
    monkeypatch: pytest.MonkeyPatch,
    identity: probes.Identity,
    *,
    failure: Ec2Error | None = None,
    known: KubeObject | None = ANNOTATED,
    api: Api | None = None,
) -> dict[str, Check]:
    monkeypatch.setattr(Aws, "of_caller", lambda _: Account(failure=failure))
    cluster = replace(CLUSTER, account=known)
    cloud, _, _, _ = await asked(cluster, identity, api or Api())
    return checked(replace(SOUND, cluster=cluster, cloud=cloud))


async def test_a_role_that_trusts_nobody_here_fails_and_names_its_trust_policy(
    monkeypatch: pytest.MonkeyPatch,
):
    checks = await found(monkeypatch, ROLE, failure=DENIED)

    assert checks["iam"].verdict is Verdict.FAILED
    assert "not authorized to perform: sts:AssumeRole" in checks["iam"].proof
    assert "trust policy allow you sts:AssumeRole" in checks["iam"].remedy
    assert "--as-service-account" in checks["iam"].remedy
    assert exit_status(checks.values()) == 1


async def test_a_role_that_does_not_trust_the_service_account_fails_with_the_subject(
    monkeypatch: pytest.MonkeyPatch,
):
    found_here = (await found(monkeypatch, BY_TOKEN, failure=DENIED))["iam"]

    assert found_here.verdict is Verdict.FAILED
    assert f"system:serviceaccount:{OURS.replace('/', ':')}" in found_here.remedy


async def test_who_may_not_have_the_token_is_told_the_right(monkeypatch: pytest.MonkeyPatch):
    refused = Api(KubeError(Reason.FORBIDDEN, "cannot create serviceaccounts/token"))
    found_here = (await found(monkeypatch, BY_TOKEN, api=refused))["iam"]

    assert found_here.verdict is Verdict.FAILED
    assert f"serviceaccounts/token of {OURS}" in found_here.remedy


@pytest.mark.parametrize(
    ("known", "words"), [(None, "was not found"), (account(), "EKS Pod Identity")]
)
async def test_a_service_account_without_a_role_fails_and_nothing_is_tried_as_you(
    monkeypatch: pytest.MonkeyPatch, known: KubeObject | None, words: str
):
    found_here = (await found(monkeypatch, BY_TOKEN, known=known))["iam"]

    assert found_here.verdict is Verdict.FAILED
    assert words in found_here.proof


async def test_no_answer_is_no_refusal(monkeypatch: pytest.MonkeyPatch):
    assert (await found(monkeypatch, ROLE, failure=SILENT))["iam"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("identity", "code", "verdict"),
    [
        (ROLE, "Throttling", Verdict.UNKNOWN),
        (ROLE, "InternalFailure", Verdict.UNKNOWN),
        (ROLE, "SignatureDoesNotMatch", Verdict.UNKNOWN),
        (ROLE, "ValidationError", Verdict.UNKNOWN),
        (BY_TOKEN, "IDPCommunicationError", Verdict.UNKNOWN),
        (BY_TOKEN, "InvalidIdentityToken", Verdict.FAILED),
    ],
)
async def test_only_a_refusal_is_laid_to_the_trust_policy(
    monkeypatch: pytest.MonkeyPatch, identity: probes.Identity, code: str, verdict: Verdict
):
    said = ClientError({"Error": {"Code": code, "Message": "its words"}}, "AssumeRole")
    failure = _translated("AssumeRole", said)
    found_here = (await found(monkeypatch, identity, failure=failure))["iam"]

    assert (found_here.verdict, "its words" in found_here.proof) == (verdict, True)
    assert ("trust policy" in found_here.remedy) is (verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("refusal", "verdict", "remedy"),
    [
        (KubeError(Reason.TIMED_OUT, "no answer yet"), Verdict.UNKNOWN, ""),
        (KubeError(Reason.FORBIDDEN, "no answer for you"), Verdict.FAILED, "get serviceaccounts"),
    ],
)
async def test_a_service_account_that_cannot_be_read_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, refusal: KubeError, verdict: Verdict, remedy: str
):
    class Silent(Api):
        async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
            raise refusal

    monkeypatch.setattr(Aws, "of_caller", lambda _: Account())
    readers = Readers(Cluster(cast("Any", Silent())), Cloud(cast("Any", Ec2()), Metrics()))
    known = await gather._account(readers.cluster, None, OURS)
    cluster = replace(CLUSTER, account=known)
    cloud, _, _, _ = await probes.ask(readers, cluster, BY_TOKEN)
    found_here = checked(replace(SOUND, cluster=cluster, cloud=cloud))["iam"]

    assert (found_here.verdict, "no answer" in found_here.proof) == (verdict, True)
    assert remedy in found_here.remedy
    assert "not found" not in found_here.proof


async def test_rights_are_tried_as_the_service_account_that_is_given(
    monkeypatch: pytest.MonkeyPatch,
):
    checks = await found(monkeypatch, BY_TOKEN)

    assert "arn:ours by token" in checks["aws-identity"].proof
    assert checks["iam-CreateVolume"].verdict is Verdict.OK


@pytest.mark.parametrize(
    "words",
    [
        ("--role", "arn", "--as-service-account", OURS),
        ("--as-controller", "--as-service-account", OURS),
        ("--as-service-account", "ebs-provisioner-controller"),
    ],
)
def test_one_identity_is_named_and_in_full(words: tuple[str, ...]):
    assert CliRunner().invoke(doctor, words).exit_code == 2


@pytest.mark.parametrize(
    "identity",
    [probes.Identity(e.DRIVER, as_controller=True, account=STOCK), BY_TOKEN],
    ids=lambda identity: identity.account,
)
async def test_the_account_that_is_given_is_taken_whoever_leads(identity: probes.Identity):
    target = Target(None, None, namespace="", driver=e.DRIVER, region=None)
    readers = Readers(Cluster(cast("Any", Api())), Cloud(None, Metrics()))
    answer = await gather.gather(readers, gather.Question(target, identity))
    found_here = answer.seen.cluster.account

    assert found_here is not None
    assert found_here.key == identity.account


def test_the_page_on_migration_tries_rights_as_our_account_before_it_leads():
    before, goes, _ = page("migrate").partition("**The stock controller goes**")

    assert goes
    assert f"kubectl ebs doctor --as-service-account {OURS}\n" in before

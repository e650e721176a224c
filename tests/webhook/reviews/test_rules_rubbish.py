"""No rule for pods, bindings and claims raises, whatever it is given."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.driver import EBS_DRIVER
from tests.webhook.reviews.pods import SHOP, ZONE, A, B, known
from webhook.model import pod as model
from webhook.model.cluster_view import ClassView
from webhook.model.review import Json, encode
from webhook.reviews import claim_rules, pod_binding_rules, pod_rules

names = st.sampled_from(["data", "web", "web-data", "none"])
rubbish: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
texts = st.sampled_from(["", "data", "web", "node-b", "zonal", A, B, ZONE, "vol-0a1", EBS_DRIVER])
CLUSTER = known(
    {"data": [A], "web-data": [B]},
    unbound={"web": "zonal"},
    classes={"zonal": ClassView(waits=False, zones=frozenset({A, B}))},
    zones={"vol-0a1": A},
)


def perhaps(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly the part, else null, else something of any type."""
    return st.integers(0, 60).flatmap(lambda n: {17: st.none(), 41: rubbish}.get(n, part))


def record(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object of which each part may be missing, null or something else."""
    optional = {key: perhaps(part) for key, part in parts.items()}
    return perhaps(st.fixed_dictionaries({}, optional=optional))


def several(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return perhaps(st.lists(part, max_size=3))


notes = perhaps(st.dictionaries(texts, texts, max_size=2))
metadata = record(name=texts, generateName=texts, namespace=texts, annotations=notes)
expression = record(
    key=texts, operator=st.sampled_from(["In", "NotIn", "Exists", "Gt", "X"]), values=several(texts)
)
term = record(matchExpressions=several(expression), matchFields=several(expression))
required = record(nodeSelectorTerms=several(term))
affinity = record(nodeAffinity=record(requiredDuringSchedulingIgnoredDuringExecution=required))
ebs = record(volumeID=st.sampled_from(["vol-0a1", "aws://us-east-1b/vol-0a1", "aws://", "x"]))
claim_spec = record(
    storageClassName=st.sampled_from(["zonal", "none"]),
    volumeName=st.sampled_from(["", "pv-data"]),
    dataSource=record(kind=st.just("PersistentVolumeClaim"), name=texts, apiGroup=texts),
    dataSourceRef=record(kind=texts, name=texts, namespace=texts),
)
volume = record(
    name=texts,
    persistentVolumeClaim=perhaps(st.fixed_dictionaries({"claimName": perhaps(names)})),
    ephemeral=record(volumeClaimTemplate=record(spec=claim_spec)),
    awsElasticBlockStore=ebs,
)
spec = record(
    nodeName=texts,
    nodeSelector=perhaps(st.dictionaries(texts, texts)),
    affinity=affinity,
    volumes=perhaps(st.lists(volume, min_size=1, max_size=4)),
)

# What reaches a rule is an object of some kind.
objects = st.dictionaries(st.text(max_size=5), rubbish)


def an_object(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    whole = st.fixed_dictionaries({key: perhaps(part) for key, part in parts.items()})
    return objects | whole | whole | whole


pods = an_object(metadata=metadata, spec=spec)
claims = an_object(metadata=metadata, spec=claim_spec)
bindings = an_object(metadata=metadata, target=record(kind=st.just("Node"), name=texts))


def is_an_answer(answer: Any) -> bool:
    response = msgspec.json.decode(encode("uid", answer))["response"]
    return response["allowed"] or bool(response["status"]["message"])


@given(pods)
def test_any_pod_is_answered(found):
    read = model.read(found)
    references = pod_rules.references(read, SHOP)

    assert all(key.startswith(f"{SHOP}/") for key in references.claims)
    assert is_an_answer(pod_rules.judge(read, CLUSTER, namespace=SHOP).answer)


@given(bindings, pods)
def test_any_binding_of_any_pod_is_answered(found, bound):
    verdict = pod_binding_rules.judge(found, model.read(bound), CLUSTER, namespace=SHOP)

    assert is_an_answer(verdict.answer)


@given(claims)
def test_any_claim_is_let_through(found):
    claim_rules.references(found, SHOP)
    assert claim_rules.judge(found, CLUSTER, namespace=SHOP).allowed

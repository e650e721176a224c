"""For whom a class is impossible: for everybody, or for this controller alone."""

import pytest

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.plan_rules import Plan, plan
from provisioner.inspect.classes import check_rules as rules
from provisioner.inspect.classes.check_rules import Findings
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.storage_class import StorageClass
from provisioner.model.zone import TopologyTerm
from tests.builders import a_claim, a_class, a_term

A, B = "us-east-1a", "us-east-1b"


def of(**parameters: str) -> StorageClass:
    return a_class(parameters=parameters, waits=True)


def with_tags(number: int, **parameters: str) -> StorageClass:
    tags = {f"tagSpecification_{i:02}": f"k{i}=v" for i in range(number)}
    return a_class(parameters=tags | parameters, waits=True)


def impossible(storage_class: StorageClass) -> str:
    """The one reason for which no claim gets a volume, from whomever."""
    found = rules.findings(storage_class)
    [text] = found.impossible
    assert found == Findings((text,), works=False)
    return text


def doubt(storage_class: StorageClass, *, works: bool = True) -> str:
    """The one doubt, and nothing else."""
    found = rules.findings(storage_class)
    [text] = found.doubts
    assert found == Findings(doubts=(text,), works=works)
    return text


def waiting(terms: list[TopologyTerm]) -> StorageClass:
    return a_class(allowed=terms, waits=True)


def makes_a_volume(storage_class: StorageClass, cluster_id: str = "") -> bool:
    """Whether a claim that nothing else keeps back gets a volume of the class."""
    found = plan(
        a_claim(size="4000Gi"),
        read(storage_class),
        zone=A,
        cluster_id=cluster_id,
        extra_tags=(),
        default_file_system="ext4",
    )
    return isinstance(found, Plan)


@pytest.mark.parametrize(
    ("storage_class", "says"),
    [
        (of(kmsKeyId="alias/mine", encrypted="false"), "encrypted is false"),
        (of(encrypted="perhaps"), "'perhaps'"),
        (of(iops="-1"), "'-1'"),
        (of(fstype="btrfs"), "'btrfs'"),
        (of(type="gp3", Type="gp3"), "given twice"),
        (of(tagSpecification_1="a={{with .PVCName}}{{.}}{{end}}"), "with is not supported"),
        (of(tagSpecification_1="a={{$x := .PVCName}}{{$x}}"), "$x"),
        (of(tagSpecification_1="a={{0x10}}"), "0x10"),
        (of(tagSpecification_1="a={{1.5}}"), "1.5"),
        (of(tagSpecification_1='a={{printf "%q" .PVCName}}'), "printf is not supported"),
        (of(tagSpecification_1="a=b", tagSpecification_2="a=b"), "given twice"),
        (
            a_class(provisioner=IN_TREE_DRIVER, parameters={"zone": A, "zones": B}),
            "both given",
        ),
        (a_class(provisioner=IN_TREE_DRIVER, parameters={"zones": f"{A},"}), "empty zone"),
    ],
)
def test_what_the_stock_driver_makes_volumes_of_is_refused_here_alone(storage_class, says):
    text = doubt(storage_class, works=False)

    assert text.startswith("this controller refuses it, although aws-ebs-csi-driver accepts it")
    assert says in text


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ([a_term(os=["linux"])], "kubernetes.io/os"),
        ([a_term(zone=[A], ebs_zone=[B])], "allow no zone"),
        ([a_term(zone=[A], ebs_zone=[B]), a_term(zone=[B], ebs_zone=[A])], "allow no zone"),
    ],
)
def test_topologies_of_which_the_stock_driver_takes_what_it_can_are_refused_here_alone(terms, says):
    found = rules.findings(a_class(allowed=terms))

    assert (found.impossible, found.works) == ((), False)
    assert says in found.doubts[0]
    assert not any("this controller" in d for d in rules.findings(waiting(terms)).doubts)


def test_a_known_secret_is_a_doubt_and_no_more():
    prefix = "csi.storage.k8s.io/node-stage-secret-"
    secret = {f"{prefix}name": "${pvc.name}", f"{prefix}namespace": "${pvc.namespace}"}

    text = doubt(a_class(parameters=secret, waits=True))

    assert text.startswith(
        f"{prefix}name and {prefix}namespace have no effect: EBS needs no secret"
    )
    unknown = a_class(parameters={f"{prefix}key": "x"}, waits=True)
    assert "unknown parameter" in impossible(unknown)


def test_more_than_aws_documents_proves_nothing_for_what_depends_on_it():
    storage_class = of(iops="100000", throughput="25000")

    found = rules.check(storage_class, default_file_system="ext4")

    assert (len(found.findings.doubts), found.findings.impossible) == (2, ())
    assert ("1,000 GiB", "80,000 IOPS, 25,000 MiB/s") in found.sizes
    assert makes_a_volume(storage_class)


@pytest.mark.parametrize("parameters", [{}, {"iopsPerGB": "5"}])
def test_more_tags_than_fit_beside_those_of_every_volume_are_impossible(parameters):
    fitting = 45 - len(parameters)

    assert makes_a_volume(with_tags(fitting, **parameters))
    text = impossible(with_tags(fitting + 1, **parameters))
    assert "would have 51 tags" in text
    assert not makes_a_volume(with_tags(fitting + 1, **parameters))


def test_more_tags_than_fit_beside_those_of_a_cluster_are_a_doubt():
    assert rules.findings(with_tags(40)) == Findings()
    assert makes_a_volume(with_tags(40), cluster_id="c")

    text = doubt(with_tags(41))

    assert text.startswith("with --cluster-id, no claim can work: the volume would have 51 tags")
    assert not makes_a_volume(with_tags(41), cluster_id="c")


@pytest.mark.parametrize(
    "value",
    ["y" * 300, "{{upper .PVCName}}", "{{js .PVName}}"],
)
def test_a_tag_that_no_claim_can_have_is_impossible(value):
    assert impossible(of(tagSpecification_1=f"a={value}"))


def test_a_value_that_is_too_long_for_some_claims_is_a_doubt():
    storage_class = of(tagSpecification_1=f"a={'y' * 253}{{{{.PVCName}}}}")

    assert "is too long" in doubt(storage_class)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"volume_binding_mode": "Later"}, "volumeBindingMode 'Later' is not one of Immediate"),
        ({"reclaim_policy": "Recycle"}, "reclaimPolicy 'Recycle' is not one of Delete"),
    ],
)
@pytest.mark.parametrize("parameters", [{}, {"encrypted": "perhaps"}])
def test_what_kubernetes_itself_takes_for_no_class_is_impossible(fields, says, parameters):
    storage_class = StorageClass(provisioner="ebs.csi.aws.com", parameters=parameters, **fields)

    assert impossible(storage_class).startswith(says)


@pytest.mark.parametrize("text", ["0", "00"])
def test_no_iops_per_gib_of_an_in_tree_io1_class_are_no_doubt(text):
    parameters = {"type": "io1", "iopsPerGB": text}

    assert (
        rules.findings(a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, waits=True))
        == Findings()
    )

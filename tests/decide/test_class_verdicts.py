"""For whom a class is impossible: for everybody, or for this controller alone."""

import pytest

from provisioner.decide import class_check as rules
from provisioner.decide.class_check import Finding, Weight
from provisioner.decide.provision import Plan, plan
from provisioner.decide.storage_class import read
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.storage_class import StorageClass
from tests.builders import a_claim, a_class, a_term

A, B = "us-east-1a", "us-east-1b"


def of(**parameters: str) -> StorageClass:
    return a_class(parameters=parameters, waits=True)


def with_tags(number: int, **parameters: str) -> StorageClass:
    tags = {f"tagSpecification_{i:02}": f"k{i}=v" for i in range(number)}
    return a_class(parameters=tags | parameters, waits=True)


def only(storage_class: StorageClass, weight: Weight) -> str:
    """The one finding, which has this weight."""
    [finding] = rules.findings(storage_class)
    assert finding.weight is weight
    return finding.text


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
        (of(tagSpecification_1="a={{$x := .PVCName}}{{$x}}"), "variables"),
        (of(tagSpecification_1="a={{0x10}}"), "0x10"),
        (of(tagSpecification_1="a={{1.5}}"), "1.5"),
        (of(tagSpecification_1='a={{printf "%q" .PVCName}}'), "%q"),
        (of(tagSpecification_1="a={{println}}"), "line break"),
        (of(tagSpecification_1="a=b", tagSpecification_2="a=b"), "given twice"),
        (
            a_class(provisioner=IN_TREE_DRIVER, parameters={"zone": A, "zones": B}),
            "both given",
        ),
        (a_class(provisioner=IN_TREE_DRIVER, parameters={"zones": f"{A},"}), "empty zone"),
    ],
)
def test_what_the_stock_driver_makes_volumes_of_is_refused_here_alone(storage_class, says):
    assert says in only(storage_class, Weight.REFUSED_HERE)


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ([a_term(os=["linux"])], "kubernetes.io/os"),
        ([a_term(zone=[A], ebs_zone=[B])], "leave no zone at all"),
        ([a_term(zone=[A], ebs_zone=[B]), a_term(zone=[B], ebs_zone=[A])], "leave no zone at all"),
    ],
)
def test_topologies_of_which_the_stock_driver_takes_what_it_can_are_refused_here_alone(terms, says):
    found = rules.findings(a_class(allowed=terms))

    assert rules.impossibilities(found) == ()
    [refusal] = rules.refusals(found)
    assert says in refusal
    assert rules.refusals(rules.findings(a_class(allowed=terms, waits=True))) == ()


def test_a_known_secret_is_a_doubt_and_no_more():
    prefix = "csi.storage.k8s.io/node-stage-secret-"
    secret = {f"{prefix}name": "${pvc.name}", f"{prefix}namespace": "${pvc.namespace}"}

    text = only(a_class(parameters=secret, waits=True), Weight.DOUBT)

    assert text.startswith(
        f"{prefix}name and {prefix}namespace have no effect: EBS needs no secret"
    )
    unknown = a_class(parameters={f"{prefix}key": "x"}, waits=True)
    assert "unknown parameter" in only(unknown, Weight.IMPOSSIBLE)


def test_more_than_aws_documents_proves_nothing_for_what_depends_on_it():
    storage_class = of(iops="100000", throughput="25000")

    found = rules.check(storage_class, default_file_system="ext4")

    assert [each.weight for each in found.findings] == [Weight.DOUBT] * 2
    assert {each.iops for each in found.sizes} <= {*range(80_001)}
    assert makes_a_volume(storage_class)


@pytest.mark.parametrize("parameters", [{}, {"iopsPerGB": "5"}])
def test_more_tags_than_fit_beside_those_of_every_volume_are_impossible(parameters):
    fitting = 45 - len(parameters)

    assert makes_a_volume(with_tags(fitting, **parameters))
    text = only(with_tags(fitting + 1, **parameters), Weight.IMPOSSIBLE)
    assert "would have 51 tags" in text
    assert not makes_a_volume(with_tags(fitting + 1, **parameters))
    assert only(with_tags(51), Weight.IMPOSSIBLE).startswith("the class has 51 tags")


def test_more_tags_than_fit_beside_those_of_a_cluster_are_a_doubt():
    assert rules.findings(with_tags(40)) == ()
    assert makes_a_volume(with_tags(40), cluster_id="c")

    text = only(with_tags(41), Weight.DOUBT)

    assert text.startswith("with --cluster-id no claim works: the volume would have 51 tags")
    assert not makes_a_volume(with_tags(41), cluster_id="c")


@pytest.mark.parametrize(
    "value",
    ["{{if .PVCName}}" + "y" * 300 + "{{end}}", '{{print "' + "x" * 300 + '"}}', "{{js .PVName}}"],
)
def test_a_tag_that_no_claim_can_have_is_impossible(value):
    assert only(of(tagSpecification_1=f"a={value}"), Weight.IMPOSSIBLE)


def test_a_value_that_is_too_long_for_some_claims_is_a_doubt():
    storage_class = of(tagSpecification_1=f"a={'y' * 253}{{{{.PVCName}}}}")

    assert "is too long" in only(storage_class, Weight.DOUBT)


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

    [finding] = rules.findings(storage_class)

    assert finding == Finding(Weight.IMPOSSIBLE, finding.text)
    assert finding.text.startswith(says)


@pytest.mark.parametrize("text", ["0", "00"])
def test_no_iops_per_gib_of_an_in_tree_io1_class_are_no_doubt(text):
    parameters = {"type": "io1", "iopsPerGB": text}

    assert (
        rules.findings(a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, waits=True)) == ()
    )

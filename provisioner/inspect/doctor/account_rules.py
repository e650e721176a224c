"""Region, account, clocks and quotas: whom AWS answers, and how much is left."""

from collections.abc import Iterator

from provisioner.inspect.doctor.check_rules import (
    Check,
    Finding,
    Rule,
    Verdict,
    judged,
    ok,
    skipped,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.reading.quota_rules import QuotaUse
from provisioner.model.node_affinity import REGION_LABEL, names_region, names_zone, region_of
from provisioner.model.zone import zone_of

MOST_AHEAD_S = 30.0  # AWS refuses requests that are 5 minutes off; leases last 15 s
REFUSED_AHEAD_S = 240.0
_NEAR, _FULL = 0.8, 0.99


def _identity(seen: Evidence) -> Finding:
    cloud = seen.cloud
    if not cloud.identity:
        return unknown("AWS was not asked, or did not say")
    if cloud.is_controllers:
        return ok(f"rights were tried as {cloud.tried_as}, the rest was read as {cloud.identity}")
    if cloud.not_as_controller:
        return unknown(
            f"rights were tried as {cloud.identity}: {cloud.not_as_controller}",
            "name the controller's role: --role ARN",
        )
    return ok(
        f"{cloud.identity} runs this command; the controller may have other rights "
        "(--role ARN or --as-controller tries its own)"
    )


def _region(seen: Evidence) -> Finding:
    told = dict(_regions(seen))
    asked = seen.cloud.region
    if not asked:
        return unknown("no AWS Region is known", "give --region or set AWS_REGION")
    if not told:
        return skipped("no Node or PersistentVolume says in which Region it is")
    if asked not in told:
        return Finding(
            Verdict.FAILED,
            f"EC2 is asked in {asked}, but {next(iter(told.values()))}",
            "correct --region or AWS_REGION, or set neither; check the controller's setting too",
        )
    others = [why for region, why in told.items() if region != asked]
    return judged(
        others,
        f"{asked}; {told[asked]}",
        "one controller serves one Region: volumes elsewhere cannot be managed by it",
        worst=Verdict.WARNING,
    )


def _controller_region(seen: Evidence) -> Finding:
    told, regions = dict(_regions(seen)), seen.cluster.controller_regions
    if not regions:
        return skipped("no Deployment of a controller names a Region")
    if not told:
        return skipped("no Node or PersistentVolume says in which Region it is")
    problems = [
        f"Deployment {key} is set to {region}, but {next(iter(told.values()))}"
        for key, region in sorted(regions.items())
        if region not in told
    ]
    remedy = (
        "correct --region or AWS_REGION in the controller's Deployment or ConfigMap, or set "
        "neither: the controller then takes the Region of the Nodes"
    )
    return judged(problems, ", ".join(f"{k}: {regions[k]}" for k in sorted(regions)), remedy)


def _regions(seen: Evidence) -> Iterator[tuple[str, str]]:
    """Region and who says so; the last of each wins."""
    for each in seen.cluster.volumes:
        for zone in each.zones or ():
            if names_zone(zone):
                yield region_of(zone), f"PersistentVolume {each.name} is in {zone}"
    for node in seen.cluster.nodes:
        zone = zone_of(node.labels) or ""
        region = region_of(zone) if names_zone(zone) else node.labels.get(REGION_LABEL, "")
        if names_region(region):
            yield region, f"Node {node.name} is in {zone or region}"


def _account(seen: Evidence) -> Finding:
    named = {node.instance_id for node in seen.cluster.nodes} - {""}
    ids = {each.volume_id(seen.driver) or "" for each in seen.cluster.volumes} - {""}
    if not named and not ids:
        return skipped("no Node or PersistentVolume names something in EC2")
    found = len(seen.cloud.instances) + len(seen.cloud.volumes)
    if not found:
        return Finding(
            Verdict.FAILED,
            f"EC2 in {seen.cloud.region} knows none of {len(named)} instances and {len(ids)} "
            f"volumes of this cluster, asked as {seen.cloud.identity or 'an unknown identity'}",
            "use credentials of the account that the cluster's instances are in",
        )
    return ok(f"EC2 in {seen.cloud.region} knows {found} of {len(named) + len(ids)}")


def _clocks(seen: Evidence) -> Finding:
    if not seen.clocks:
        return unknown("neither the API server nor AWS told its time")
    text = "; ".join(f"{each.name} {each.ahead_s:+.0f} s" for each in seen.clocks)
    worst = max(abs(each.ahead_s) for each in seen.clocks)
    remedy = "let the machine that is off synchronise its clock (NTP; 169.254.169.123 in EC2)"
    if worst > REFUSED_AHEAD_S:
        return Finding(Verdict.FAILED, f"against this machine: {text}", remedy)
    if worst > MOST_AHEAD_S:
        return Finding(Verdict.WARNING, f"against this machine: {text}", remedy)
    return ok(f"against this machine: {text}")


def quota_checks(seen: Evidence) -> Iterator[Check]:
    """One check for each quota that is in use, or one that says why there is none."""
    title = "quotas of the account are not near their end"
    why = seen.gaps.get("ListServiceQuotas", "")
    if why or not seen.cloud.quotas:
        remedy = (
            "allow servicequotas:ListServiceQuotas and servicequotas:ListAWSDefaultServiceQuotas"
        )
        if "ListServiceQuotas" in seen.unanswered:
            remedy = ""
        proof = why or "Service Quotas was not asked"
        yield Check("quotas", Verdict.UNKNOWN, title, proof, remedy)
        return
    for each in sorted(seen.cloud.quotas, key=lambda quota: quota.code):
        found = _quota(each)
        yield Check(f"quota-{each.code}", found.verdict, each.name, found.proof, found.remedy)


def _quota(quota: QuotaUse) -> Finding:
    if not quota.limit and not quota.used:
        return skipped("the quota is 0, and nothing counts against it")
    part = quota.used / quota.limit if quota.limit else 1.0
    text = f"{quota.used:,.2f} of {quota.limit or 0:,.0f} {quota.unit} ({part:.0%})"
    remedy = (
        "aws service-quotas request-service-quota-increase --service-code ebs --quota-code "
        f"{quota.code} --desired-value N"
    )
    if part >= _FULL:
        return Finding(Verdict.FAILED, text, remedy)
    return Finding(Verdict.WARNING, text, remedy) if part >= _NEAR else ok(text)


RULES = (
    Rule("aws-identity", "AWS answers", ("GetCallerIdentity",), _identity),
    Rule(
        "region",
        "EC2 is asked in the Region of the cluster",
        ("nodes", "persistentvolumes", "EC2"),
        _region,
    ),
    Rule(
        "controller-region",
        "the controller works in the Region of the cluster",
        ("nodes", "persistentvolumes", "deployments", "configmaps"),
        _controller_region,
    ),
    Rule(
        "account",
        "EC2 is asked in the account of the cluster",
        ("nodes", "persistentvolumes", "DescribeInstances", "DescribeVolumes"),
        _account,
    ),
    Rule("clocks", "all clocks agree", (), _clocks),
)

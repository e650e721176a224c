"""Why a volume cannot be made from a claim's data source, by the rules of the controller itself."""

from provisioner.controller.claims import source_rules
from provisioner.inspect.explain import reason_rules, snapshot_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.view_rules import ClaimView, View
from provisioner.inspect.reading.gap_rules import GROUPS
from provisioner.inspect.shell_words import is_name, shell
from provisioner.model.claim import Claim, DataSource
from provisioner.model.data_source import Source
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason


def chain(view: View, about: ClaimView, claim: Claim) -> Chain | None:
    """Why its source is of no use; None if it is, or there is none."""
    source = claim.source
    if source is None or not (source.is_snapshot or source.is_claim):
        return None
    if not view.read("volumesnapshots" if source.is_snapshot else "persistentvolumeclaims"):
        return None
    found = _found(view, about, claim, source)
    if isinstance(found, Source):
        return None
    if source.is_snapshot and about.snapshot is not None and about.snapshot.snapshot is not None:
        deeper = [each for each in snapshot_rules.chains(view, about.snapshot) if each.links]
        if deeper:
            waits = Chain(deeper[0].links, deeper[0].waits)
            return waits.then(_link(source, found, about))
    return Chain((_link(source, found, about),), waits=found.normal)


def _found(view: View, about: ClaimView, claim: Claim, source: DataSource) -> Source | Refuse:
    if source.is_claim:
        return source_rules.of_claim(
            claim, about.source_claim, about.source_volume, driver=view.driver
        )
    snapshot = about.snapshot
    return source_rules.of_snapshot(
        claim,
        snapshot.snapshot if snapshot else None,
        snapshot.content if snapshot else None,
        driver=view.driver,
        is_served=GROUPS in view.unread
        or (snapshot is not None and snapshot_rules.SERVED in snapshot.versions),
    )


def _link(source: DataSource, refused: Refuse, about: ClaimView) -> Link:
    namespace = about.namespace
    kind, name = source.kind.lower(), source.name
    shown = is_name(kind) and is_name(name)  # somebody with no more than a namespace wrote them
    return Link(
        _cause(refused),
        f"No volume can be made from the claim's data source: {refused.message}."
        if not refused.normal
        else f"The claim waits for its data source: {refused.message}.",
        Proof(f"{about.name}, spec.dataSource", f"{source.kind} {source.name}"),
        next="you" if not refused.normal else "the source: the claim continues once it is ready",
        remedy=_remedy(refused),
        command=shell("kubectl -n {} get {} {}", namespace, kind, name) if shown else "",
    )


def _cause(refused: Refuse) -> Cause | Reason:
    if refused.normal:
        return Cause.SOURCE_NOT_READY
    if refused.reason is Reason.OBJECT_NOT_FOUND:
        return Cause.SOURCE_MISSING
    if refused.reason is Reason.NOT_SUPPORTED:
        return Cause.NO_SNAPSHOT_KINDS
    return refused.reason


def _remedy(refused: Refuse) -> str:
    if refused.normal:
        return ""
    if refused.reason is Reason.OBJECT_NOT_FOUND:
        return "Create the source, or create the claim again with another one."
    return reason_rules.remedy(refused.reason)

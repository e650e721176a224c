"""Refuse a StorageClass that can never work, and warn about one that may not do what is meant.

``provisioner.inspect.classes.check_rules`` says what a class can do, for ``ebs-provisioner class
check`` too. A refusal rests on the class alone, so nothing has to be read to prove it. The webhook
works beside aws-ebs-csi-driver too, so what only our controller refuses is no reason to deny.
"""

from collections.abc import Collection

import msgspec

from provisioner.inspect.classes import check_rules as class_check_rules
from provisioner.inspect.classes.check_rules import NodeZone
from provisioner.model.storage_class import StorageClass
from webhook.model.cluster_view import NodeView
from webhook.model.review import Answer, Json, allow, deny


def judge(document: Json, nodes: Collection[NodeView] | None, *, driver: str) -> Answer:
    """Judge a new class.

    Args:
        document: the StorageClass.
        nodes: the views of all of the cluster, None if they are not known yet.
        driver: whose classes these are, besides in-tree ones.
    """
    try:
        storage_class = msgspec.convert(document, StorageClass)
    except msgspec.ValidationError:
        return allow("NothingToDo")
    if not storage_class.is_of(driver):
        return allow("NothingToDo")
    located = None if nodes is None else [_located(view) for view in nodes]
    found = class_check_rules.findings(storage_class, located)
    subject = f'storageclass "{storage_class.name}"'
    if found.impossible:
        why = "; ".join(found.impossible)
        return deny("ImpossibleClass", f"{subject} can never work: {why}")
    warnings = [f"{subject}: {each}" for each in found.doubts]
    return allow("ClassInDoubt" if warnings else "ClassSound", warnings=warnings)


def _located(view: NodeView) -> NodeZone:
    if view.zone is None:
        return NodeZone("", view.has_driver)
    return class_check_rules.node_zone(dict(view.labels), has_driver=view.has_driver)

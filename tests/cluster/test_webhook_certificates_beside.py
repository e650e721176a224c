"""Certificates beside what others write: a GitOps tool, cert-manager, and each other."""

from __future__ import annotations

import asyncio
import base64

import pytest

from provisioner.kube.client import KubeClient
from provisioner.model.errors import KubeError, Reason
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.keepers import CONFIGURATIONS, PLURALS, Keep, data_of, issued
from tests.cluster.replicas import eventually
from webhook.certificates.webhook_configurations import Configurations
from webhook.model.review import Json

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DUE, FRESH = issued(70), issued()


async def an_account_with_rights_by_name(
    background: Background, api: Api, namespace: str, keep: Keep
) -> str:
    """A kubeconfig with the rights of manifests/webhook/rbac.yaml to what the certificates need."""
    verbs = ["get", "list", "watch", "patch"]

    def rule(group: str, *resources: str) -> Json:
        return {
            "apiGroups": [group],
            "resources": list(resources),
            "resourceNames": [keep.name],
            "verbs": verbs,
        }

    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    for kind, where, granted in (
        ("Role", f"{RBAC}/namespaces/{namespace}/roles", rule("", "secrets")),
        (
            "ClusterRole",
            f"{RBAC}/clusterroles",
            rule("admissionregistration.k8s.io", *PLURALS),
        ),
    ):
        metadata = {"name": keep.name}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": keep.name}
        await api.create(where, {"metadata": metadata, "rules": [granted]})
        await api.create(
            where.replace("roles", "rolebindings"),
            {"metadata": metadata, "roleRef": reference, "subjects": [subject]},
        )
    plane = background.sandbox.plane
    token = await background.call(plane.service_account_token(namespace, "default"))
    return str(plane.kubeconfig_for(token))


async def test_beside_a_gitops_tool_with_rights_by_name_only(
    background: Background, api: Api, namespace: str, keep: Keep
) -> None:
    await keep.put_secret({})
    await keep.apply()
    kubeconfig = await an_account_with_rights_by_name(background, api, namespace, keep)
    replica = await keep.replica(kubeconfig=kubeconfig)
    await replica.ready()
    settled = await keep.settled()
    assert await keep.ask() == ""

    # Applied again it takes nothing away from us, and a bundle taken away by force is back at once.
    await keep.apply()
    assert await keep.bundles() == {settled["ca.crt"]}
    for plural in PLURALS:
        path = f"{CONFIGURATIONS}/{plural}/{keep.name}"
        (webhook,) = (await api.get(path))["webhooks"]
        webhook["clientConfig"].pop("caBundle")
        await api.patch(path, {"webhooks": [webhook]})
    await keep.settled()

    for plural in PLURALS:
        found = await api.get(f"{CONFIGURATIONS}/{plural}/{keep.name}")
        ours = [
            each for each in found["metadata"]["managedFields"] if each["manager"] == "ebs-webhook"
        ]
        (webhook,) = found["webhooks"]
        key = 'k:{"name":"' + webhook["name"] + '"}'
        assert [each["operation"] for each in ours] == ["Apply"]
        assert ours[0]["fieldsV1"] == {
            "f:webhooks": {key: {".": {}, "f:name": {}, "f:clientConfig": {"f:caBundle": {}}}}
        }
    # Informers that were refused their watch would have said so.
    assert replica.warnings == []
    for plural in ("clusterroles", "clusterrolebindings"):
        await api.delete(f"{RBAC}/{plural}/{keep.name}")


async def test_a_foreign_secret_is_only_read(keep: Keep) -> None:
    one, two = issued(), issued()
    await keep.put_secret(data_of(one))
    await keep.apply()
    for plural in PLURALS:
        path = f"{CONFIGURATIONS}/{plural}/{keep.name}"
        (webhook,) = (await keep.api.get(path))["webhooks"]
        bundle = base64.b64encode(one.authority + two.authority).decode()
        webhook["clientConfig"]["caBundle"] = bundle
        await keep.api.patch(path, {"webhooks": [webhook]})
    replica = await keep.replica(registration="")
    await replica.ready()
    async with keep.load():
        await eventually("some reviews", lambda: keep.asked > 5)
        shown = await asyncio.to_thread(replica.shown)
        await keep.put_secret(data_of(two))

        async def swapped() -> bool:
            return await asyncio.to_thread(replica.shown) != shown

        await eventually("the other certificate", swapped)
        asked = keep.asked
        await eventually("more reviews", lambda: keep.asked > asked + 5)

    assert keep.failures == []
    assert await keep.secret() == data_of(two)


async def test_an_old_reading_cannot_undo_a_newer_bundle(sandbox: Sandbox, keep: Keep) -> None:
    await keep.apply()
    async with await KubeClient.connect(kubeconfig=str(sandbox.plane.kubeconfig)) as client:
        ours = Configurations(client, name=keep.name)
        old = await ours.read()
        await ours.publish(old, FRESH.authority)
        with pytest.raises(KubeError) as caught:
            await ours.publish(old, DUE.authority)

        assert caught.value.reason is Reason.CONFLICT
    assert await keep.bundles() == {FRESH.authority}

"""As whom requests are sent: what kubectl reads in a kubeconfig, and the library does not."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from provisioner.kube import credentials
from provisioner.kube.client import KubeClient
from provisioner.kube.impersonation_rules import Impersonation
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason
from tests.kube.apiserver import ApiServer, Watch, document
from tests.kube.conftest import kubeconfig_for

PV = "/api/v1/persistentvolumes/pv-1"
PVS = "/api/v1/persistentvolumes"
EVE = {
    "token": "mine",
    "as": "eve",
    "as-uid": "u-1",
    "as-groups": ["dev", "ops, night"],
    "as-user-extra": {"scopes": ["view", "dev"], "acme.com/über": ["x"]},
}


async def sent(server: ApiServer, path: Path, user: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The headers about others of a request, by their names in small letters."""
    path.write_text(kubeconfig_for(server.url, user))
    server.on("GET", PV, document({}))
    async with await KubeClient.connect(kubeconfig=str(path), **given) as client:
        await client.get(PERSISTENT_VOLUMES, "pv-1")
    headers = server.requests[-1].headers
    assert headers["Authorization"] == "Bearer mine"
    names = {each.lower() for each in headers if each.lower().startswith("impersonate-")}
    return {each: headers.getall(each) for each in names}


async def test_requests_are_sent_as_the_kubeconfigs_user_says(server: ApiServer, tmp_path: Path):
    assert await sent(server, tmp_path / "config", EVE) == {
        "impersonate-user": ["eve"],
        "impersonate-uid": ["u-1"],
        "impersonate-group": ["dev", "ops, night"],
        "impersonate-extra-scopes": ["view", "dev"],
        "impersonate-extra-acme.com%2f%c3%bcber": ["x"],
    }


async def test_without_it_requests_are_sent_as_oneself(server: ApiServer, tmp_path: Path):
    assert await sent(server, tmp_path / "config", {"token": "mine"}) == {}


async def test_what_is_given_goes_before_the_kubeconfig_and_the_rest_stays(
    server: ApiServer, tmp_path: Path
):
    given = Impersonation("mallory", groups=("admins",))
    user = {key: value for key, value in EVE.items() if key != "as-user-extra"}

    assert await sent(server, tmp_path / "config", user, impersonate=given) == {
        "impersonate-user": ["mallory"],
        "impersonate-uid": ["u-1"],
        "impersonate-group": ["admins"],
    }


async def test_watches_and_what_is_read_again_are_sent_as_the_other_one_too(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credentials, "REFRESH_S", 0.0)  # before each request
    path = tmp_path / "config"
    path.write_text(kubeconfig_for(server.url, {"token": "mine", "as": "eve"}))
    server.on("WATCH", PVS, Watch(("ADDED", {"metadata": {"name": "pv-1"}})).end())
    async with await KubeClient.connect(kubeconfig=str(path)) as client:
        lines = client.watch(PERSISTENT_VOLUMES, resource_version="1", timeout_s=1)
        async with aclosing(lines):
            async for _ in lines:
                break

    assert [each.headers["Impersonate-User"] for each in server.requests] == ["eve"]


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"as-groups": ["dev"]}, "and no user, are set"),
        ({"as-uid": "1"}, "and no user, are set"),
        ({"as": 7}, "as 7 is not a text: write it in quotes"),
        ({"as": "eve", "as-groups": "dev"}, "as-groups is not a list of texts"),
        ({"as": "eve", "as-groups": [1]}, "as-groups 1 is not a text"),
        ({"as": "eve", "as-user-extra": ["x"]}, "as-user-extra is not a mapping of lists"),
        ({"as": "eve\r\nX: y"}, "has characters that no header can have"),
    ],
)
async def test_what_cannot_be_meant_is_one_sentence_and_nothing_is_sent(
    user: dict[str, Any], says: str, server: ApiServer, tmp_path: Path
):
    path = tmp_path / "config"
    path.write_text(kubeconfig_for(server.url, {"token": "mine"} | user))

    with pytest.raises(KubeError) as caught:
        await KubeClient.connect(kubeconfig=str(path))

    assert caught.value.reason is Reason.UNREACHABLE
    assert caught.value.message.startswith(f"cannot use {path}: ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert server.requests == []


async def test_the_user_of_the_chosen_context_of_several_files_counts(
    server: ApiServer, tmp_path: Path
):
    server.on("GET", PV, document({}))
    for name in ("one", "two"):
        there = json.loads(kubeconfig_for(server.url, {"token": "mine", "as": name}))
        there["contexts"][0]["name"] = there["users"][0]["name"] = name
        there["contexts"][0]["context"]["user"] = name
        (tmp_path / name).write_text(json.dumps(there | {"current-context": "one"}))
    path = f"{tmp_path / 'one'}:{tmp_path / 'two'}"

    async with await KubeClient.connect(kubeconfig=path, context="two") as client:
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert server.requests[-1].headers["Impersonate-User"] == "two"

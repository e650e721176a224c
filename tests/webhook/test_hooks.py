from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.model.driver import EBS_DRIVER
from tests.webhook.services import by_service
from webhook.model import hooks
from webhook.settings import NAME, NAMESPACE

MANIFESTS = Path(__file__).parents[2] / "manifests/webhook/webhooks.yaml"


@pytest.mark.parametrize("kind", [hooks.MUTATING, hooks.VALIDATING])
def test_the_table_says_what_the_manifests_say(kind: str):
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFESTS.read_text()))
    applied = {each["kind"]: each for each in documents}
    table = hooks.configurations(NAME, by_service(NAME, NAMESPACE), driver=EBS_DRIVER)

    assert applied.keys() == table.keys()
    assert table[kind] == applied[kind]


def test_a_url_stands_in_place_of_the_service():
    table = hooks.configurations("w", hooks.by_url("https://127.0.0.1:9443/"), driver=EBS_DRIVER)
    webhooks = [each for kind in table.values() for each in kind["webhooks"]]

    assert [each["clientConfig"] for each in webhooks] == [
        {"url": f"https://127.0.0.1:9443{path}"}
        for path in (
            "/mutate/persistentvolumes",
            "/mutate/persistentvolumes",
            "/validate/persistentvolumes",
            "/validate/persistentvolumeclaims",
            "/validate/pods",
            "/validate/bindings",
            "/validate/storageclasses",
        )
    ]
    assert {each["metadata"]["name"] for each in table.values()} == {"w"}


def test_another_driver_is_asked_about():
    table = hooks.configurations("w", hooks.by_url("https://w"), driver="other.csi.example.com")

    label, _ = table[hooks.MUTATING]["webhooks"]
    condition, _ = label["matchConditions"]
    assert 'object.spec.csi.driver == "other.csi.example.com"' in condition["expression"]
    assert f'"{EBS_DRIVER}"' not in str(table)

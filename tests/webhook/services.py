"""The webhook configurations of the manifests, as the API server has them."""

from pathlib import Path

import yaml

from webhook.model.review import Json

_FILE = Path(__file__).parents[2] / "manifests/webhook/webhooks.yaml"


def configurations() -> dict[str, Json]:
    """Both, by kind: no webhook of them is trusted by anything."""
    documents: list[Json] = list(yaml.safe_load_all(_FILE.read_text()))
    return {each["kind"]: each for each in documents}

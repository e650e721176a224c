"""The webhook configurations of the manifests, as the API server has them."""

import copy
from functools import cache
from pathlib import Path

from tests.documents import yaml_documents
from webhook.model.review import Json

_FILE = Path(__file__).parents[2] / "manifests/webhook/webhooks.yaml"


def configurations() -> dict[str, Json]:
    """Both, by kind: no webhook of them is trusted by anything."""
    return copy.deepcopy(_documents())


@cache
def _documents() -> dict[str, Json]:
    return {each["kind"]: each for each in yaml_documents(_FILE.read_text())}

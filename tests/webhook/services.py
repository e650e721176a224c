"""How a webhook behind a Service is reached; the product itself registers URLs only."""

from collections.abc import Callable

from webhook.model.review import Json


def by_service(name: str, namespace: str) -> Callable[[str], Json]:
    """``clientConfig`` for a webhook behind a Service."""
    return lambda path: {"service": {"name": name, "namespace": namespace, "path": path}}

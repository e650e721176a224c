"""Times as the API server writes them."""

from datetime import datetime

from provisioner.model.meta import UnlabelledObject


def time_of(text: str | None) -> datetime | None:
    """A time; None for none, or for what is no time."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def deleted_at(obj: UnlabelledObject) -> datetime | None:
    """Since when an object is being deleted; None if it is not."""
    return time_of(obj.metadata.deletion_timestamp)

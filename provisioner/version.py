"""Which version this is: ``project.version`` of pyproject.toml, as pip has installed it."""

from importlib.metadata import PackageNotFoundError, version


def our_version() -> str:
    """The distribution's version; "0" in a source tree that was never installed."""
    try:
        return version("ebs-provisioner")
    except PackageNotFoundError:
        return "0"

"""Tags whose values name the claim: ``team={{ .PVCNamespace | toUpper }}``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """What a template can name: the claim and its persistent volume."""

    claim_namespace: str = ""
    claim_name: str = ""
    persistent_volume_name: str = ""


@dataclass(frozen=True, slots=True)
class TagTemplate:
    """One tag: its key as it is, its value as a template."""

    key: str
    text: str

    def render(self, names: Names) -> str:  # noqa: ARG002 -- replaced at once
        """The tag's value for one volume.

        Raises:
            ValueError: one sentence: what in the template cannot be worked out.
        """
        return self.text


def parse(text: str) -> TagTemplate:
    """Read ``key=value``.

    Raises:
        ValueError: one sentence that names what is wrong.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text[:100]!r} is not of the form key=value")
    return TagTemplate(key, value)

"""The one error of the sandbox."""

from __future__ import annotations


class SandboxError(Exception):
    """The sandbox cannot go on; the text is one line for the person who started it."""

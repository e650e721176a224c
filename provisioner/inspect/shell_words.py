"""Commands that are printed for somebody to paste into a shell.

Texts of events, and some fields of objects, are written by anybody who may write in a namespace:
of these only names that Kubernetes accepts get into a command, and every word is quoted.
"""

import re
import shlex

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# A quoted word is data and stays as it is; a plugin takes flags only after its own name.
_KUBECTL = re.compile(
    r"""(?<![^\s=])(?:'[^']*'|"'")+|\bkubectl(?: ebs [a-z]+|(?= (?!ebs\b)[-a-z]))"""
)
_LONGEST = 253  # RFC 1123 subdomain, the longest name of a Kubernetes object


def shell(command: str, *words: str) -> str:
    """A command whose ``{}`` are filled with words, each quoted so that a shell takes it as one.

    No command at all, "", if a word would be read as a flag: no object has such a name.
    """
    if any(each.startswith("-") for each in words):
        return ""
    return command.format(*map(shlex.quote, words))


def is_name(text: str) -> bool:
    """Whether it can be the name of a Kubernetes object (RFC 1123 subdomain)."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def with_region(command: str, region: str) -> str:
    """The same command; one of the AWS CLI asks in this region."""
    if not region or not command.startswith("aws ") or " --region " in command:
        return command
    return f"{command} --region {shlex.quote(region)}"


def cluster_flags(context: str | None, kubeconfig: str | None) -> str:
    """The flags that name a cluster to kubectl, of those that were given; "" for none."""
    given = (("--context", context), ("--kubeconfig", kubeconfig))
    return " ".join(f"{flag} {shlex.quote(value)}" for flag, value in given if value)


def with_cluster(text: str, flags: str) -> str:
    """The same command or sentence; each kubectl in it asks the cluster that these flags name.

    Without them, what is pasted would change objects of the same names in the current context.
    """
    if not flags:
        return text

    def flagged(found: re.Match[str]) -> str:
        return f"{found[0]} {flags}" if found[0].startswith("kubectl") else found[0]

    return _KUBECTL.sub(flagged, text)

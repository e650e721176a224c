"""Whose volumes ``kubectl ebs move`` is about: one claim, several, or those of a StatefulSet."""

from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.inspect.object_name_rules import NAMES_OF_KINDS, claim_name, namespaced
from provisioner.model.sentences import printable

SET_WORDS = frozenset({"sts", "statefulset", "statefulsets"})
_CLAIM = "pvc"
_OTHER_KINDS = frozenset({"deploy", "deployment", "deployments", "pod", "pods", "po"})


@dataclass(frozen=True, slots=True)
class Subject:
    """What is moved. ``claims``: their names, none for those of the StatefulSet ``set_name``."""

    namespace: str
    claims: tuple[str, ...] = ()
    set_name: str = ""


def subject(words: Sequence[str], namespace: str, default: str = "") -> Subject:
    """What is meant by ``pvc/data``, ``pvc/data pvc/logs`` or ``sts/web``.

    Args:
        words: arguments; names may have a namespace, such as ``pvc/shop/data``.
        namespace: as given by -n; a name with another one is refused.
        default: for a name without one where none was given.

    Raises:
        ValueError: one sentence: what is wrong, and what would do.
    """
    kind = kind_of(words[0]) if words else ""
    if kind in _OTHER_KINDS:
        raise ValueError(f"no {kind} is moved: name claims, such as pvc/data, or sts/NAME")
    if kind in SET_WORDS:
        return _set(words, namespace, default)
    if len(words) > 1 and all(_is_claim(each) for each in words):
        return _claims(words, namespace, default)
    found = claim_name(tuple(words), namespace, default)
    return Subject(found.namespace, (found.name,))


def kind_of(word: str) -> str:
    """The kind before the slash, in small letters and without a group; else the whole word."""
    return word.partition("/")[0].lower().partition(".")[0]


def is_set(text: str) -> bool:
    """Whether ``sts/NAME`` is meant, and not an object of a namespace."""
    return "/" in text and kind_of(text) in SET_WORDS


def _set(words: Sequence[str], namespace: str, default: str) -> Subject:
    _, slash, rest = words[0].partition("/")
    names = [rest, *words[1:]] if slash else list(words[1:])
    if len(names) != 1:
        raise ValueError("name one StatefulSet, such as: sts/web")
    space, name = namespaced(names[0], namespace, default)
    return Subject(space, set_name=name)


def _is_claim(word: str) -> bool:
    return "/" in word and NAMES_OF_KINDS.get(kind_of(word)) == _CLAIM


def _claims(words: Sequence[str], namespace: str, default: str) -> Subject:
    found = [namespaced(each.partition("/")[2], namespace, default) for each in words]
    spaces, names = {space for space, _ in found}, [name for _, name in found]
    if len(spaces) > 1:
        raise ValueError("claims that are moved together are those of one pod: of one namespace")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"claim {printable(twice)} is named twice")
    return Subject(spaces.pop(), tuple(names))

"""How commands name an object: KIND NAMESPACE/NAME, and the ways that kubectl has."""

from dataclasses import dataclass

from provisioner.model.sentences import printable

DEFAULT_NAMESPACE = "default"
# The names that kubectl takes (kubectl api-resources, Kubernetes 1.36), and the field's own words.
_KINDS = {
    "pod": ("pod", "pods", "po"),
    "pvc": ("pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims", "claim", "claims"),
    "pv": ("pv", "pvs", "persistentvolume", "persistentvolumes"),
    "node": ("node", "nodes", "no"),
    "snapshot": ("snapshot", "snapshots", "volumesnapshot", "volumesnapshots", "vs"),
}
NAMES_OF_KINDS = {word: kind for kind, words in _KINDS.items() for word in words}
KINDS = tuple(_KINDS)
_CLAIM = "pvc"
_CLUSTER_WIDE = frozenset({"pv", "node"})
_LONGEST = 253  # RFC 1123 subdomain, the longest name of a Kubernetes object


@dataclass(frozen=True, slots=True)
class ObjectName:
    """An object that a command is about.

    Attributes:
        kind: pod, pvc, pv, node or snapshot.
        namespace: "" for cluster-wide kinds.
        name: the object's.
    """

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


def object_name(words: tuple[str, ...], namespace: str, default: str = "") -> ObjectName:
    """The object that is meant by ``pod shop/web-0``, ``pod web-0`` or ``pod/web-0``.

    Args:
        words: one or two arguments.
        namespace: as given by -n; a name with another one is refused.
        default: for a name without one where none was given, as a kubeconfig's context names it.

    Raises:
        ValueError: one sentence: what is wrong, and what would do.
    """
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if len(words) != 2:  # noqa: PLR2004 -- a kind and a name
        raise ValueError("name one object, such as: pod shop/web-0")
    word, rest = words
    kind = NAMES_OF_KINDS.get(word.lower().partition(".")[0])
    if kind is None:
        known = ", ".join(_KINDS)
        raise ValueError(f"unknown kind {printable(word)[:80]!r}: use one of {known}")
    if kind in _CLUSTER_WIDE:
        _, slash, name = rest.rpartition("/")
        if slash:
            raise ValueError(f"a {kind} has no namespace: write {kind} {printable(name)}")
        return ObjectName(kind, "", _checked(name))
    return ObjectName(kind, *namespaced(rest, namespace, default))


def namespaced(text: str, namespace: str, default: str = "") -> tuple[str, str]:
    """The namespace and the name that are meant by ``shop/data`` or ``data``.

    Args:
        text: one argument.
        namespace: as given by -n; a name with another one is refused.
        default: for a name without one where none was given.

    Raises:
        ValueError: one sentence: what is wrong, and what would do.
    """
    named, slash, name = text.rpartition("/")
    if slash and namespace and named != namespace:
        raise ValueError(
            f"{printable(text)} is in namespace {printable(named)}, but -n says "
            f"{printable(namespace)}: leave one of them out"
        )
    return _checked(named or namespace or default or DEFAULT_NAMESPACE), _checked(name)


def claim_name(words: tuple[str, ...], namespace: str, default: str = "") -> ObjectName:
    """The claim that is meant by ``shop/data``, ``data``, ``pvc shop/data`` or ``pvc/data``.

    Args:
        words: one or two arguments.
        namespace: as given by -n; a name with another one is refused.
        default: for a name without one where none was given, as a kubeconfig's context names it.

    Raises:
        ValueError: one sentence: what is wrong, and what would do.
    """
    first, slash, rest = words[0].partition("/") if words else ("", "", "")
    kind = NAMES_OF_KINDS.get(first.lower())
    if len(words) == 1:
        words = (first, rest) if kind and slash else (_CLAIM, *words)
        kind = kind if slash and kind else _CLAIM
    if kind not in {None, _CLAIM}:
        raise ValueError(f"this command is for claims, not for a {kind}: use NAMESPACE/NAME")
    if kind is None or len(words) != 2:  # noqa: PLR2004 -- a kind and a name
        raise ValueError("name one claim, such as: shop/data")
    return object_name(words, namespace, default)


def _checked(name: str) -> str:
    odd = not name or len(name) > _LONGEST or not name.isascii() or not name.isprintable()
    if odd or set(name) & set("/ %?#"):
        raise ValueError(f"{printable(name)[:80]!r} cannot be the name of an object")
    return name

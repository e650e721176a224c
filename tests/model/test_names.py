"""Our keys are spelt in one file, and the reference lists all of them."""

import ast
import re

from provisioner.model import names
from tests.documents import DOCS
from tests.test_layout import FILES, tree_of

# Topology keys, ``topology.ebs.csi.aws.com/…``, are in ``model/zone.py``.
KEY = re.compile(r"(?<![\w.])(?:ebs-provisioner\.io|ebs\.csi\.aws\.com)/")
# Of a manifest and of the sandbox: no file of the product reads them.
ELSEWHERE = {f"{names.OUR_PREFIX}{name}" for name in ("zone-guard", "sandbox-node", "volume-move")}


def spelt(tree: ast.Module) -> list[str]:
    """The texts with one of our keys, docstrings left out."""
    prose = {
        id(statement.value)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in prose
        and isinstance(node.value, str)
        and KEY.search(node.value)
    ]


def test_a_key_that_is_spelt_elsewhere_is_found():
    assert spelt(ast.parse('X = f"annotate {x} ebs-provisioner.io/zone={y}"')) != []
    assert spelt(ast.parse('"""About ebs-provisioner.io/zone."""\nX = 1')) == []


def test_no_other_file_of_the_product_spells_one_of_our_keys():
    product = [path for path in FILES if "sandbox" not in path.parts and path.stem != "names"]
    found = {str(path): texts for path in product if (texts := spelt(tree_of(path)))}

    assert found == {}


def test_the_reference_lists_all_of_our_keys():
    text = (DOCS / "reference/options.md").read_text().partition("## Annotations, labels")[2]
    ours = {value for value in vars(names).values() if str(value).startswith(names.OUR_PREFIX)}

    listed = set(re.findall(rf"`({re.escape(names.OUR_PREFIX)}[\w-]+)`", text))
    assert listed == (ours - {names.OUR_PREFIX}) | ELSEWHERE

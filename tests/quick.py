"""Run the tests that a change may break, nearest first: what ``make quick`` does last.

A test file is as far from a change as there are imports between the two. The tests in the folder
that mirrors a changed module's are as far as two imports. Tests of the real control plane are left
out.

    python -m tests.quick            what differs from where the branch left main, uncommitted too
    python -m tests.quick PATH...    these files or folders, as if they had changed
"""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("provisioner", "webhook", "tests")
FARTHEST = 3
MOST_FILES = 100
"""What two cores run in less than a minute, beside lint and types."""
ALONE = 8
"""Up to so many files, starting worker processes takes longer than it saves."""

_DOTTED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_FROM = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def changed(root: Path = ROOT) -> set[Path]:
    """The files that differ from where the branch left main, and those that git does not know."""
    # Without a branch main there is nothing to compare with but the last commit.
    base = _git(root, "merge-base", "HEAD", "main") or ["HEAD"]
    differ = _git(root, "diff", "--name-only", "--no-renames", base[0])
    return {
        Path(name) for name in differ + _git(root, "ls-files", "--others", "--exclude-standard")
    }


def nearest(changes: AbstractSet[Path], root: Path = ROOT) -> list[Path]:
    """All test files up to ``FARTHEST`` imports from what has changed, the nearest first."""
    texts = {
        path.relative_to(root): path.read_text()
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    importers = _importers(texts)
    reached = dict.fromkeys(changes & texts.keys(), 0)
    front = set(reached)
    for distance in range(1, FARTHEST + 1):
        front = {each for path in front for each in importers[path]} | {
            path for path in texts if distance == _beside(path, changes, texts)
        }
        front -= reached.keys()
        reached |= dict.fromkeys(front, distance)
    tests = [path for path in reached if _is_test(path)]
    return sorted(tests, key=lambda path: (reached[path], path))


def _beside(test: Path, changes: AbstractSet[Path], texts: Mapping[Path, str]) -> int | None:
    """How far a test is from changes that it does not import; None where no rule puts it near."""
    if not _is_test(test):
        return None
    if any(path.name == "conftest.py" and path.parent in test.parents for path in changes):
        return 1
    data = [path for path in changes if path.suffix != ".py"]
    if any(_tells_of(texts[test], path) for path in data):
        return 1
    code = [path for path in changes if path.suffix == ".py"]
    return 2 if any(test.parent == _mirror(path.parent) for path in code) else None


def _tells_of(text: str, data: Path) -> bool:
    """Whether a test names a file that is no module, or the top folder that it is in."""
    by_name = bool(data.suffix) and data.name in text
    return by_name or f'"{data.parts[0]}"' in text or data.as_posix() in text


def _mirror(folder: Path) -> Path | None:
    """The folder of the tests of a folder's modules."""
    match folder.parts:
        case ("provisioner", *rest) if rest:
            return Path("tests", *rest)
        case ("webhook", *rest) if rest:
            return Path("tests", "webhook", *rest)
        case _:
            return None


def _importers(texts: Mapping[Path, str]) -> Mapping[Path, set[Path]]:
    modules = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in texts
    }
    importers: defaultdict[Path, set[Path]] = defaultdict(set)
    for path, text in texts.items():
        for name in _names(text):
            parts = name.split(".")
            heads = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
            module = next((head for head in heads if head in modules), None)
            if module is not None:
                importers[modules[module]].add(path)
    return importers


def _names(text: str) -> set[str]:
    """All that a file may import. Also as text: programs are run by ``-m`` and a module's name."""
    imported = {
        f"{module}.{name}"
        for module, names in _FROM.findall(text)
        for name in re.findall(r"\w+", names)
    }
    return imported | set(_DOTTED.findall(text))


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_") and path.parts[:2] != ("tests", "cluster")


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1]


def _below(paths: Iterable[Path]) -> set[Path]:
    below = {each for path in paths for each in (path.rglob("*") if path.is_dir() else [path])}
    return {path.resolve().relative_to(ROOT) for path in below}


def pytest_for(tests: Sequence[Path]) -> list[str]:
    """The command that runs these."""
    workers = [] if len(tests) <= ALONE else ["-n", "2", "--dist", "loadfile"]
    options = ["--quiet", "-m", "not cluster", *workers]
    return [sys.executable, "-m", "pytest", *options, *map(str, tests)]


def main(arguments: Sequence[str]) -> int:
    """Run the nearest tests; the exit code of pytest."""
    changes = _below(map(Path, arguments)) if arguments else changed()
    tests = nearest(changes)
    now, later = tests[:MOST_FILES], tests[MOST_FILES:]
    _say(f"{len(changes)} files have changed; test files near them: {len(tests)}")
    code = subprocess.run(pytest_for(now), cwd=ROOT, check=False).returncode if now else 0
    if later:
        _say(f"the {len(later)} test files farthest away were left out: make unit runs all")
    return code


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

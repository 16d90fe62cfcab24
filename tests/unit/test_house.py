"""The repository: lock files and the rules of CI."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging import requirements, utils

pytest_plugins = ["pytester"]

LOCKS = ("base", "demo", "dev", "train")


def pins(checkout: Path, lock: str) -> dict[str, set[str]]:
    """Return the versions of each package in a lock file; markers may choose among several."""
    result: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==([\w.+!-]+)", (checkout / f"requirements/{lock}.txt").read_text(), re.M
    ):
        result.setdefault(utils.canonicalize_name(name), set()).add(version)
    return result


def required(checkout: Path) -> dict[str, list[str]]:
    """Return the requirements in pyproject.toml for each lock file."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    base = project["project"]["dependencies"] + groups["build"]
    dev = base + [entry for entry in groups["dev"] if isinstance(entry, str)]
    train = dev + project["project"]["optional-dependencies"]["train"]
    demo = base + [entry for entry in groups["demo"] if isinstance(entry, str)]
    return {"base": base, "demo": demo, "dev": dev, "train": train, "uv": groups["setup"]}


@pytest.mark.parametrize("lock", [*LOCKS, "uv"])
def test_lock_is_in_step_with_pyproject(checkout: Path, lock: str) -> None:
    pinned = pins(checkout, lock)
    missing = []
    for line in required(checkout)[lock]:
        requirement = requirements.Requirement(line)
        versions = pinned.get(utils.canonicalize_name(requirement.name), set())
        if not versions or not all(requirement.specifier.contains(v) for v in versions):
            missing.append(line)
    assert missing == [], "run script/lock to update the lock files"


def test_the_locks_agree(checkout: Path) -> None:
    base, demo, dev, train = (pins(checkout, lock) for lock in LOCKS)
    for smaller, larger in ((base, demo), (base, dev), (demo, train), (dev, train)):
        assert smaller.items() <= larger.items()
    assert not {"mypy", "pytest", "ruff", "matplotlib"} & demo.keys()


@pytest.mark.parametrize("lock", [*LOCKS, "uv"])
def test_lock_has_hashes_and_no_addresses(checkout: Path, lock: str) -> None:
    text = (checkout / f"requirements/{lock}.txt").read_text()
    assert re.search(r"://|^-|(^|\s)/\w", text, re.M) is None
    packages = re.findall(r"^[\w.-]+==.*(?:\n    .*)*", text, re.M)
    assert [package for package in packages if "--hash=sha256:" not in package] == []


SKIPS = """
import pytest

@pytest.mark.cluster
@{mark}
def test_needs_a_cluster():
    pytest.skip("not root")
"""


@pytest.mark.parametrize(
    ("mark", "arguments", "ci", "code"),
    [
        ("pytest.mark.cluster", [], "true", 1),
        ("pytest.mark.cluster", [], "false", 0),
        ("pytest.mark.slow", [], "true", 0),
        ("pytest.mark.slow", ["--long"], "true", 1),
    ],
)
def test_in_ci_a_skipped_cluster_test_is_a_failure(
    checkout: Path,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    arguments: list[str],
    ci: str,
    code: int,
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest((checkout / "tests/conftest.py").read_text())
    pytester.makepyfile(SKIPS.format(mark=mark))
    pytester.makeini("[pytest]\nmarkers =\n    cluster:\n    slow:\n")
    done = pytester.runpytest_inprocess(*arguments)
    assert done.ret == code
    assert ("may not be skipped in CI" in done.stdout.str()) == bool(code)


@pytest.mark.parametrize("package", ["orchestrator", "db", "trainers"])
def test_no_group_is_repeated_possessively(checkout: Path, package: str) -> None:
    """`(...)*+` misses matches before Python 3.11.5 (gh-106052); `(?>(...)*)` does not."""
    files = [*checkout.glob(f"{package}/**/*.py"), *checkout.glob(f"{package}/*.toml")]
    found = [str(path) for path in files if re.search(r"\)[*+?]\+", path.read_text())]
    assert files and found == []

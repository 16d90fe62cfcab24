"""Arguments and environment of git, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.code import git


def test_only_the_store_is_named() -> None:
    environ = {"PATH": "/bin", "GIT_DIR": "/evil", "GIT_CONFIG_COUNT": "1", "HOME": "/home/alice"}
    own = git.environment(Path("/s"), environ, root=Path("/p"), index=Path("/s/i"))
    assert own["HOME"] == "/s"
    assert (own["GIT_DIR"], own["GIT_WORK_TREE"], own["GIT_INDEX_FILE"]) == ("/s", "/p", "/s/i")
    assert "GIT_CONFIG_COUNT" not in own
    other = git.of_others(environ, Path("/p"))
    assert other["HOME"] == "/home/alice"
    assert not {"GIT_DIR", "GIT_CONFIG_COUNT"} & other.keys()


@pytest.mark.parametrize(
    ("version", "is_one_pack"),
    [
        ("git version 2.39.5", True),
        ("git version 2.37.0 (Apple Git)", True),
        ("git version 2.31.1", False),
        ("git version 3.0", True),
        ("", False),
    ],
)
def test_one_pack_where_git_writes_one(version: str, is_one_pack: bool) -> None:
    assert ("core.bigFileThreshold=1" in git.settings(version)) == is_one_pack


def test_a_conflict_is_one_file() -> None:
    lines = ["100644 a 1\tx", "100644 b 2\tx", "120000 c 0\tl", "160000 d 0\tsub"]
    output = "".join(f"{line}\0" for line in lines)
    assert git.tracked(output) == git.Tracked(files=("x", "l"), submodules=("sub",))


def test_names_that_are_not_utf_8() -> None:
    assert git.joined(["a", "caf\udce9"]) == b"a\0caf\xe9\0"

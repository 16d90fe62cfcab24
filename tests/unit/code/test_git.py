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


NOT_WRITTEN = "Make it writable, or set state_dir to another folder."
FAILURES = {
    # seen with git 2.39 on a full disk
    "fatal: unable to write loose object file: No space left on device": (
        "git update-index failed: fatal: unable to write loose object file: No space left on "
        "device. Free space on the disk of /s: `orchestrator usage --disk` shows what jobs need "
        "there."
    ),
    "error: x\nfatal: Unable to write new index file": (
        "git update-index failed: fatal: Unable to write new index file. Free space on the disk of "
        "/s: `orchestrator usage --disk` shows what jobs need there."
    ),
    "fatal: Unable to create temporary file '/s/objects/pack/tmp_pack_XXXXXX': Permission denied": (
        "cannot write /s: git update-index: fatal: Unable to create temporary file "
        f"'/s/objects/pack/tmp_pack_XXXXXX': Permission denied. {NOT_WRITTEN}"
    ),
    "error: insufficient permission for adding an object to repository database /s/objects\n": (
        "cannot write /s: git update-index: error: insufficient permission for adding an object to "
        f"repository database /s/objects. {NOT_WRITTEN}"
    ),
    'error: open("x"): Permission denied\nfatal: updating files failed': (
        '/p: git update-index failed: error: open("x"): Permission denied'
    ),
    "warning: could not open directory 'data/': Permission denied": (
        "/p/data cannot be read: Permission denied. Make it readable (chmod u+rx), or add it to "
        ".gitignore."
    ),
    "no end after 1800 s": "/p: git update-index failed: no end after 1800 s",
}


@pytest.mark.parametrize("output", FAILURES)
def test_why_a_call_failed(output: str) -> None:
    store = Path("/s")
    assert git.failure("update-index", output, store, store, Path("/p")) == FAILURES[output]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("archive", "no end after 1800 s"),
        ("archive", "exit code -9"),
        ("init", "fatal: not possible"),
    ],
)
def test_what_shows_no_damage(command: str, output: str) -> None:
    message = git.failure(command, output, Path("/s"), Path("/runs"), None)
    assert message == f"/runs: git {command} failed: {output}"


def test_a_copy_that_cannot_be_written() -> None:
    """On a full disk git prints no reason."""
    output = "error: unable to write file large\nerror: unable to write file x"
    folder, draft = Path("/again"), Path("/.again.x")
    assert git.failure("checkout-index", output, Path("/s"), folder, draft) == (
        "git checkout-index failed: error: unable to write file large. Is /again writable, and its "
        "disk not full?"
    )

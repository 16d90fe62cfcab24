"""Where git is asked."""

from __future__ import annotations

from pathlib import Path

from orchestrator import provenance


def test_git_is_started_only_below_a_tree(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("GIT_DIR", raising=False)
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    assert provenance.git_in(folder)(["--version"]) is None
    # Of a worktree or a submodule it is a file.
    (folder.parent / ".git").write_text("gitdir: elsewhere\n")
    said = provenance.git_in(folder)(["--version"])
    assert said is not None and said.startswith("git version")


def test_git_is_told_of_a_tree_elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    said = provenance.git_in(tmp_path)(["--version"])
    assert said is not None and said.startswith("git version")

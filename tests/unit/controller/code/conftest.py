"""A working tree, and a store of snapshots in a state folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.controller.code import store as stores
from orchestrator.controller.code import worktree


class Tree:
    """A repository with one commit, and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        self.runs_dir = folder / "runs"
        home = folder / "home"
        home.mkdir(mode=0o700)
        self.home = home
        environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self.store = stores.Store(folder=home / "state" / "code", environ=environ)
        self.folder.mkdir()
        self.git("init", "-q")
        self.write("train.py", "one\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        own = ("user.name=a", "user.email=a@b", "protocol.file.allow=always")
        # Since git 2.47 it runs in the background, and writes while a test looks.
        settings = [word for each in (*own, "maintenance.auto=false") for word in ("-c", each)]
        command = ["git", "-C", str(folder or self.folder), *settings, *arguments]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        done = subprocess.run(command, check=True, capture_output=True, env=environ)
        return os.fsdecode(done.stdout)

    def names(self, folder: Path | None = None) -> list[str]:
        """Return the files that a snapshot has, sorted."""
        return sorted(worktree.listing(self.store, folder or self.folder).names)

    def take(self, folder: Path | None = None) -> str:
        listing = worktree.listing(self.store, folder or self.folder)
        return self.store.take(listing.root, listing.names, {})

    def contents(self, tree: str) -> dict[str, bytes]:
        return {
            file.path: os.fsencode(
                self.git("cat-file", "blob", f"{tree}:{file.path}", folder=self.store.folder)
            )
            for file in self.store.read(tree)
        }

    def state(self) -> dict[str, bytes]:
        """Return all files of the repository itself."""
        paths: Sequence[Path] = sorted((self.folder / ".git").rglob("*"))
        return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)

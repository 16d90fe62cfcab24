"""Snapshots of code, relative to git itself."""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

from orchestrator.controller.code import store as stores
from orchestrator.controller.code import worktree
from tests.benchmarks import ratios

FOLDERS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=59_000_000, help="of all files together")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if a ratio exceeds its budget."""
    with tempfile.TemporaryDirectory() as name:
        work = _Work(pathlib.Path(name), arguments.files, arguments.bytes)
        files = f"{arguments.files:,} files, {arguments.bytes / 1e6:.0f} MB"
        add = "`git add -A && git write-tree`"
        result = [
            ratios.measure(
                f"first snapshot of {files} / {add} on a fresh index",
                work.first_snapshot,
                work.first_add,
                repeats=arguments.repeats,
                budget=1.5,
                after=work.clear,
            ),
            ratios.measure(
                f"snapshot of the same files, unchanged / {add} on the index of the first time",
                work.next_snapshot,
                work.next_add,
                repeats=arguments.repeats,
                budget=None,
            ),
            ratios.measure(
                "archive of the snapshot / `git archive`",
                work.archive,
                work.git_archive,
                repeats=arguments.repeats,
                budget=None,
            ),
        ]
    print(ratios.table(result))
    return 0 if all(ratio.kept for ratio in result) else 1


class _Work:
    """A repository with files of random lines, and new stores beside it."""

    def __init__(self, folder: pathlib.Path, files: int, size_bytes: int) -> None:
        self._folder, self._root = folder, folder / "tree"
        self._numbers = itertools.count()
        words = random.Random(0)
        for number in range(files):
            path = self._root / f"package{number % FOLDERS}" / f"module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = words.randbytes(size_bytes // files // 2).hex()
            path.write_text("\n".join(text[at : at + 80] for at in range(0, len(text), 80)))
        subprocess.run(["git", "init", "-q", self._root], check=True)
        self._kept = self._store("kept")
        self._tree = self._take(self._kept)
        self._git("kept-git")

    def _store(self, name: str) -> stores.Store:
        return stores.Store(folder=self._folder / "state" / name, environ=os.environ)

    def _take(self, store: stores.Store) -> str:
        listing = worktree.listing(store, self._root)
        return store.take(listing.root, listing.names, {})

    def _git(self, name: str) -> None:
        objects = self._folder / "git" / name
        objects.mkdir(parents=True, exist_ok=True)
        environ = {
            **os.environ,
            "GIT_INDEX_FILE": str(objects / "index"),
            "GIT_OBJECT_DIRECTORY": str(objects),
        }
        for words in (["add", "-A"], ["write-tree"]):
            command = ["git", "-C", self._root, *words]
            subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)

    def first_snapshot(self) -> None:
        self._take(self._store(f"new{next(self._numbers)}"))

    def first_add(self) -> None:
        self._git(f"new{next(self._numbers)}")

    def next_snapshot(self) -> None:
        self._take(self._kept)

    def next_add(self) -> None:
        self._git("kept-git")

    def archive(self) -> None:
        self._kept.archive(self._tree, self._folder / f"runs{next(self._numbers)}")

    def git_archive(self) -> None:
        output = self._folder / f"{next(self._numbers)}.tar"
        command = ["git", "--git-dir", self._kept.folder, "archive", "-o", output, self._tree]
        subprocess.run(command, check=True)

    def clear(self) -> None:
        """Remove what the last first time left: later ones start alike."""
        for path in self._folder.glob("*/new*"):
            shutil.rmtree(path)

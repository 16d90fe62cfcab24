"""Calls of git for provenance; the configuration of the repository executes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
import types
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.controller.submission import job_scripts, provenance
from tests import builders

_SUBMODULE = "submodule"


def test_git_is_started_only_below_a_tree(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("GIT_DIR", raising=False)
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    assert provenance.git_in(folder)(["--version"]) is None
    # Of a worktree or a submodule it is a file.
    (folder.parent / ".git").write_text("gitdir: elsewhere\n")
    output = provenance.git_in(folder)(["--version"])
    assert output is not None and output.startswith("git version")


def test_git_dir_of_the_caller_is_ignored(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    output = provenance.git_in(tmp_path)(["--version"])
    assert output is not None and output.startswith("git version")


class Tree:
    """A working tree with one commit and two changed files, and a program that leaves a trace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder.parent / "program"
        self._trace = folder.parent / "trace"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >>{self._trace}\ncat\n')
        self.program.chmod(0o700)
        self.make(folder)

    def make(self, folder: Path) -> None:
        folder.mkdir()
        self.git("init", "-q", folder=folder)
        (folder / "train.py").write_text("one\n")
        (folder / "data.bin").write_text("one\n")
        self.git("add", ".", folder=folder)
        self.git("commit", "-q", "-m", "first", folder=folder)
        (folder / "train.py").write_text("two\n")
        (folder / "data.bin").write_text("two two\n")

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
        command = ["git", "-C", str(folder or self.folder), *own, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def config(self, *pairs: str, folder: Path | None = None) -> None:
        for pair in pairs:
            key, _, value = pair.partition("=")
            self.git("config", key, value.replace("PROGRAM", str(self.program)), folder=folder)

    def attributes(self, text: str) -> None:
        (self.folder / ".git" / "info" / "attributes").write_text(text + "\n")

    def lose_a_blob(self) -> None:
        """Remove what a partial clone would fetch from its remote."""
        name = self.git("rev-parse", "HEAD:train.py").strip()
        (self.folder / ".git" / "objects" / name[:2] / name[2:]).unlink()
        self.config(
            "core.repositoryFormatVersion=1",
            "extensions.partialClone=origin",
            "remote.origin.promisor=true",
        )

    def collect(self, folder: Path | None = None) -> dict[str, Any]:
        context: Any = types.SimpleNamespace(
            calling_folder=folder or self.folder, reporter=builders.SILENT
        )
        request = job_scripts.Request(spec=jobs.JobSpec(name="x"), source="s")
        text = provenance.collect(context, request, template=("t", "h"))
        return json.loads(text)

    def executed(self) -> str:
        return self._trace.read_text() if self._trace.exists() else ""


@pytest.fixture(name="tree")
def _tree(tmp_path: Path, monkeypatch) -> Tree:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Tree(tmp_path / "tree")


def _attack(tree: Tree, attack: str) -> None:
    match attack:
        case "core.fsmonitor":
            tree.config("core.fsmonitor=PROGRAM")
        case "include.path":
            (tree.folder / ".git" / "more").write_text(f"[core]\nfsmonitor={tree.program}\n")
            tree.config("include.path=more")
        case "config.worktree":
            tree.config("core.repositoryFormatVersion=1", "extensions.worktreeConfig=true")
            text = f"[core]\nfsmonitor={tree.program}\n"
            (tree.folder / ".git" / "config.worktree").write_text(text)
        case "diff.external":
            tree.config("diff.external=PROGRAM")
        case "diff.x.command":
            tree.config("diff.x.command=PROGRAM")
            tree.attributes("*.py diff=x")
        case "diff.x.textconv":
            tree.config("diff.x.textconv=PROGRAM")
            tree.attributes("*.py diff=x")
        case "core.attributesFile":
            (tree.folder / ".git" / "named").write_text("*.py diff=x\n")
            tree.config("diff.x.command=PROGRAM", f"core.attributesFile={tree.folder}/.git/named")
        case "filter.x.clean":
            tree.config("filter.x.clean=PROGRAM", "filter.x.required=true")
            tree.attributes("*.py filter=x")
        case "filter.x.process":
            tree.config("filter.x.process=PROGRAM", "filter.x.required=true")
            tree.attributes("*.py filter=x")
        case "filter without a name":
            with (tree.folder / ".git" / "config").open("a") as file:
                file.write(f'[filter ""]\nclean = {tree.program}\n')
            tree.attributes("*.py filter=")
        case "filter with = in its name":
            with (tree.folder / ".git" / "config").open("a") as file:
                file.write(f'[filter "a=b"]\nclean = {tree.program}\n')
            tree.attributes("*.py filter=a=b")
        case "core.sshCommand":
            tree.lose_a_blob()
            tree.config("remote.origin.url=ssh://host/x", "core.sshCommand=PROGRAM")
        case "remote.origin.uploadpack":
            tree.lose_a_blob()
            tree.config(f"remote.origin.url={tree.folder}", "remote.origin.uploadpack=PROGRAM")
        case "ext::":
            tree.lose_a_blob()
            tree.config("remote.origin.url=ext::PROGRAM", "protocol.ext.allow=always")
        case "submodule":
            sub = tree.folder / _SUBMODULE
            tree.make(sub)
            tree.git("-c", "advice.addEmbeddedRepo=false", "add", _SUBMODULE)
            tree.git("commit", "-q", "-m", "with submodule")
            tree.git("commit", "-q", "-a", "-m", "second", folder=sub)
            (sub / "train.py").write_text("three\n")
            own = ("core.fsmonitor=PROGRAM", "diff.external=PROGRAM", "filter.x.clean=PROGRAM")
            tree.config(*own, folder=sub)
            (sub / ".git" / "info" / "attributes").write_text("* filter=x\n")
            tree.config("diff.submodule=diff", "status.submoduleSummary=true")
        case "bare repository in the tree":
            bare = tree.folder / "bare"
            tree.git("clone", "-q", "--bare", str(tree.folder), str(bare))
            work = ("core.bare=false", f"core.worktree={tree.folder}", "core.fsmonitor=PROGRAM")
            tree.config(*work, folder=bare)
        case _:
            raise AssertionError(attack)


@pytest.mark.parametrize(
    "attack",
    [
        "core.fsmonitor",
        "include.path",
        "config.worktree",
        "diff.external",
        "diff.x.command",
        "diff.x.textconv",
        "core.attributesFile",
        "filter.x.clean",
        "filter.x.process",
        "filter without a name",
        "filter with = in its name",
        "core.sshCommand",
        "remote.origin.uploadpack",
        "ext::",
        "submodule",
        "bare repository in the tree",
    ],
)
def test_the_repositorys_configuration_executes_nothing(tree: Tree, attack: str) -> None:
    _attack(tree, attack)
    record = tree.collect(tree.folder / "bare" if attack.startswith("bare") else None)
    assert tree.executed() == ""
    if not attack.startswith("bare"):
        assert record["git_commit"] == tree.git("rev-parse", "HEAD").strip()


def test_changes_of_an_ordinary_tree(tree: Tree) -> None:
    (tree.folder / "new.py").write_text("new\n")
    tree.config("color.ui=always")
    record = tree.collect()
    assert record["git_dirty"] is True
    assert record["git_branch"] == tree.git("branch", "--show-current").strip()
    assert record["git_status"] == " M data.bin\n M train.py\n?? new.py\n"
    assert "-one\n+two\n" in record["git_diff"]
    assert (record["git_diff_cut"], record["git_filters_off"]) == (False, [])


def test_a_commit_without_a_branch(tree: Tree) -> None:
    tree.git("checkout", "-q", "--detach")
    record = tree.collect()
    assert record["git_commit"] == tree.git("rev-parse", "HEAD").strip()
    assert record["git_branch"] is None


def test_another_commit_of_a_submodule_is_a_change(tree: Tree) -> None:
    _attack(tree, "submodule")
    record = tree.collect()
    assert f" M {_SUBMODULE}\n" in record["git_status"]
    assert "+Subproject commit " in record["git_diff"]


def test_files_behind_a_filter_are_recorded_as_they_are(tree: Tree) -> None:
    # The user's own filter is off too: git-lfs runs what lfs.extension.*.clean names.
    Path(os.environ["GIT_CONFIG_GLOBAL"]).write_text(
        f'[filter "lfs"]\nclean = {tree.program} %f\nprocess = {tree.program}\nrequired = true\n'
    )
    tree.attributes("*.bin filter=lfs")
    record = tree.collect()
    assert tree.executed() == ""
    assert record["git_status"] == " M data.bin\n M train.py\n"
    assert "-one\n+two two\n" in record["git_diff"]
    assert record["git_filters_off"] == ["lfs"]


def test_a_filtered_file_that_did_not_change_is_clean(tree: Tree) -> None:
    tree.git("commit", "-q", "-a", "-m", "second")
    hour_ago = time.time() - 3600
    for path in ("train.py", "data.bin"):
        # Not in the second in which the index is written: git would compare their content.
        os.utime(tree.folder / path, (hour_ago, hour_ago))
    tree.git("update-index", "--refresh")
    tree.config("filter.lfs.clean=PROGRAM", "filter.lfs.required=true")
    tree.attributes("*.bin filter=lfs")
    record = tree.collect()
    assert (record["git_dirty"], record["git_status"]) == (False, "")


def test_a_filter_that_cannot_be_switched_off(tree: Tree) -> None:
    _attack(tree, "filter with = in its name")
    record = tree.collect()
    assert (record["git_dirty"], record["git_status"], record["git_diff"]) == (None, None, None)


def test_a_huge_diff_is_not_read_to_its_end(tree: Tree, monkeypatch) -> None:
    monkeypatch.setattr(provenance, "DIFF_LIMIT_BYTES", 1000)
    monkeypatch.setattr(provenance, "_OUTPUT_LIMIT_BYTES", 4000)
    (tree.folder / "train.py").write_text("line of a very large file\n" * 1_000_000)
    record = tree.collect()
    assert record["git_diff_cut"] is True
    assert len(record["git_diff"]) == 1000


def test_hung_git_is_abandoned(tree: Tree, monkeypatch) -> None:
    monkeypatch.setattr(provenance, "GIT_TIMEOUT_SECONDS", 0.5)
    fifo = tree.folder / ".git" / "fifo"
    os.mkfifo(fifo)
    tree.config("include.path=fifo")
    begun = time.monotonic()
    assert tree.collect()["git_commit"] is None
    assert time.monotonic() - begun < 30

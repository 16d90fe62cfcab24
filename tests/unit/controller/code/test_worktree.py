"""Which files belong to a snapshot; nothing of a repository is executed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.controller.code import worktree
from tests.unit.controller.code.conftest import Tree


def test_what_git_ignores_is_left_out(tree: Tree) -> None:
    tree.write(".gitignore", "build/\n")
    tree.write("sub/.gitignore", "*.tmp\n!keep.tmp\n")
    (tree.folder / ".git" / "info" / "exclude").write_text("private\n")
    tree.write("../home/.config/git/ignore", "*.swp\n")
    for name in ("build/x", "sub/a.tmp", "sub/keep.tmp", "private", "x.swp", "sub/new.py"):
        tree.write(name, "x\n")
    expected = [".gitignore", "sub/.gitignore", "sub/keep.tmp", "sub/new.py", "train.py"]
    assert tree.names() == expected
    tree.write("../home/patterns", "sub\n")
    tree.write("../home/.gitconfig", "[core]\nexcludesFile = ~/patterns\n")
    assert tree.names() == [".gitignore", "train.py", "x.swp"]


def test_a_folder_without_repository(tree: Tree) -> None:
    shutil.rmtree(tree.folder / ".git")
    tree.write(".gitignore", "*.log\n")
    tree.write("a.log", "x\n")
    assert tree.names() == [".gitignore", "train.py"]


def test_folders_of_ours_are_ignored(tree: Tree) -> None:
    for name in ("runs *[x]\\/job/x", "sub/state/x", "runs/x"):
        tree.write(name, "x\n")
    own = [tree.folder / "runs *[x]\\", tree.folder / "sub" / "state", Path("/elsewhere")]
    listing = worktree.listing(tree.store, tree.folder, own)
    assert sorted(listing.names) == ["runs/x", "train.py"]


def test_a_repository_of_the_home_folder_is_not_meant(tree: Tree) -> None:
    (tree.home / ".git").mkdir()
    project = tree.home / "project"
    assert worktree.root_of(project, tree.home) == project
    assert worktree.root_of(project, Path("/elsewhere")) == tree.home


def test_a_worktree(tree: Tree) -> None:
    (tree.folder / ".git" / "info" / "exclude").write_text("private\n")
    other = tree.folder.parent / "other"
    tree.git("worktree", "add", "-q", str(other))
    (other / "private").write_text("x\n")
    (other / "new.py").write_text("x\n")
    assert worktree.root_of(other / "sub", tree.home) == other
    assert tree.names(other) == ["new.py", "train.py"]


def test_tracked_files_that_are_gone_or_below_a_link(tree: Tree) -> None:
    tree.write("folder/x.py", "x\n")
    tree.write("gone.py", "x\n")
    tree.git("add", "-A")
    (tree.folder / "gone.py").unlink()
    (tree.folder / "folder").rename(tree.folder.parent / "elsewhere")
    (tree.folder / "folder").symlink_to(tree.folder.parent / "elsewhere")
    assert tree.names() == ["folder", "train.py"]
    assert [file.path for file in tree.store.read(tree.take())] == ["folder", "train.py"]


def test_repositories_inside(tree: Tree) -> None:
    inner = tree.folder / "vendor" / "library"
    inner.mkdir(parents=True)
    tree.git("init", "-q", folder=inner)
    tree.write("vendor/library/x.py", "x\n")
    source = tree.folder.parent / "source"
    shutil.copytree(tree.folder, source)
    tree.git("submodule", "--quiet", "add", str(source), "with_content")
    tree.git("submodule", "--quiet", "add", str(source), "without_content")
    tree.git("commit", "-qm", "second")
    tree.git("submodule", "--quiet", "deinit", "-f", "without_content")
    listing = worktree.listing(tree.store, tree.folder)
    assert listing.names == [".gitmodules", "train.py"]
    assert sorted(listing.nested) == ["vendor/library", "with_content"]
    assert listing.submodules_without_content == ("without_content",)


def test_a_repository_of_another_user_counts_as_a_folder(tree: Tree) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    tree.write(".gitignore", "*.log\n")
    tree.write("tracked.log", "x\n")
    tree.git("add", "-f", ".")
    assert "tracked.log" in tree.names()
    for path in (tree.folder, *tree.folder.rglob("*")):
        os.lchown(path, 65534, 65534)
    assert tree.names() == [".gitignore", "train.py"]


def test_files_that_cannot_be_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read all files, so this one is only said to be unreadable."""
    tree.write("secret", "x\n")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: "secret" not in path and access(path, mode)
    )
    found = worktree.listing(tree.store, tree.folder).found
    assert {each.name: each.is_readable for each in found} == {"train.py": True, "secret": False}


@pytest.mark.parametrize("target", ["data", "runs/3", "runs"])
def test_absolute_links_through_another_name_of_the_folder(tree: Tree, target: str) -> None:
    """The home folder is often a link, and the root of a snapshot never leads through one."""
    alias = tree.folder.parent / "alias"
    alias.symlink_to(tree.folder)
    (tree.folder / "runs" / "3").mkdir(parents=True)
    (tree.folder / "latest").symlink_to(alias / target)
    (link,) = [each for each in worktree.listing(tree.store, tree.folder).found if each.target]
    assert link.target == str(tree.folder / target)


ATTACKS = {
    "core.fsmonitor": "[core]\nfsmonitor = PROGRAM\n",
    "hooks": "[core]\nhooksPath = HOOKS\n",
    "include.path": "[include]\npath = more\n",
    "includeIf": '[includeIf "gitdir:**"]\npath = more\n',
    "filter": '[filter "x"]\nclean = PROGRAM\nsmudge = PROGRAM\nprocess = PROGRAM\nrequired\n',
    "textconv": '[diff "x"]\ntextconv = PROGRAM\ncommand = PROGRAM\n[diff]\nexternal = PROGRAM\n',
    "sshCommand": (
        "[core]\nsshCommand = PROGRAM\nrepositoryFormatVersion = 1\n[extensions]\n"
        'partialClone = origin\n[remote "origin"]\npromisor = true\nurl = ssh://host/x\n'
    ),
    "pager": "[core]\npager = PROGRAM\neditor = PROGRAM\naskPass = PROGRAM\n",
    "alias": "[alias]\nls-files = !PROGRAM\nadd = !PROGRAM\narchive = !PROGRAM\n",
    "tar": '[tar "tar"]\ncommand = PROGRAM\n[tar]\numask = 0777\n',
    "core.worktree": "[core]\nworktree = HOME\n",
    "index": "[core]\nuntrackedCache = true\nsplitIndex = true\n[index]\nsparse = true\n",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_hostile_configuration_executes_nothing(tree: Tree, attack: str, is_own: bool) -> None:
    """Neither if it came in an archive of the user's, nor if another user owns all of it."""
    if not is_own and os.geteuid() != 0:
        pytest.skip("needs root")
    trace = tree.folder.parent / "trace"
    hooks = tree.folder.parent / "hooks"
    hooks.mkdir()
    program = tree.folder.parent / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >>{trace}\ncat\n')
    program.chmod(0o755)
    names = ("post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman")
    for folder in (hooks, tree.folder / ".git" / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copy2(program, folder / name)
    text = ATTACKS[attack].replace("PROGRAM", str(program)).replace("HOOKS", str(hooks))
    with (tree.folder / ".git" / "config").open("a") as file:
        file.write(text.replace("HOME", str(tree.home)))
    (tree.folder / ".git" / "more").write_text(f"[core]\nfsmonitor = {program}\n")
    for path in (tree.folder / ".gitattributes", tree.folder / ".git" / "info" / "attributes"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("* filter=x diff=x\n")
    (tree.home / "secret").write_text("x\n")
    if not is_own:
        for path in (tree.folder, *tree.folder.rglob("*")):
            os.lchown(path, 65534, 65534)
    before = tree.state()
    taken = tree.take()
    tree.store.archive(taken, tree.runs_dir)
    tree.store.extract(taken, tree.folder.parent / "copy")
    tree.write("train.py", "two\n")
    tree.store.difference(taken, tree.take(), limit_bytes=10**6)
    assert [file.path for file in tree.store.read(taken)] == [".gitattributes", "train.py"]
    assert not trace.exists()
    assert tree.state() == before


@pytest.mark.parametrize("kind", ["link", "file", "alternates"])
def test_a_repository_elsewhere(tree: Tree, kind: str) -> None:
    """Not even the objects of the repository are read."""
    hidden = tree.folder.parent / "hidden"
    repository = tree.folder / ".git"
    if kind == "alternates":
        shutil.rmtree(repository / "objects")
        (repository / "objects" / "info").mkdir(parents=True)
        os.mkfifo(repository / "objects" / "info" / "alternates")
    else:
        repository.rename(hidden)
        with (hidden / "config").open("a") as file:
            file.write("[core]\nfsmonitor = touch ../trace\n")
        if kind == "link":
            repository.symlink_to(hidden)
        else:
            repository.write_text(f"gitdir: {hidden}\n")
    tree.write("new.py", "new\n")
    assert [file.path for file in tree.store.read(tree.take())] == ["new.py", "train.py"]
    assert not (tree.folder.parent / "trace").exists()
    assert worktree.root_of(tree.folder / "sub", tree.home) == tree.folder

"""Code snapshots of unusual working trees."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess

import pytest

from orchestrator.controller.code import store as stores
from orchestrator.controller.code import worktree
from orchestrator.processes import process
from tests.flow import code_project


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return code_project.Project(cli, fake_slurm)


def _files(project):
    """Submit with a snapshot; return the files in it."""
    assert project.cli("submit", "--snapshot", "train.py").code == 0
    tree = project.trees()[-1]
    words = ["git", f"--git-dir={project.cli.state_dir}/code", "ls-tree", "-r", "-z", tree]
    output = subprocess.run([*words, "--name-only"], check=True, capture_output=True).stdout
    return output.rstrip(b"\0").split(b"\0")


def test_links_and_empty_files_come_first(project):
    """With core.fsyncMethod=batch git 2.39 loses the pack that it begins after one of these."""
    (project.folder / "__init__.py").touch()
    (project.folder / "a.py").symlink_to("train.py")
    assert _files(project) == [b"__init__.py", b"a.py", b"job.toml", b"train.py"]


def test_only_repositories(project):
    """No file of its own, so no index of its own."""
    folder = project.folder
    (folder / "inner").mkdir()
    for name in (".git", "train.py"):
        (folder / name).rename(folder / "inner" / name)
    (folder / "job.toml").unlink()
    words = ("submit", "--snapshot", "inner/train.py")
    assert project.cli(*words).code == 0
    assert project.cli(*words).code == 0
    assert len(set(project.trees())) == 1


def test_a_submodule_in_a_folder_that_git_ignores(project):
    folder = project.folder
    subprocess.run(["git", "clone", "-q", folder, folder / "ext" / "lib"], check=True)
    project.git("add", "ext/lib")
    (folder / ".gitignore").write_text("ext\n")
    files = [b"ext/lib/job.toml", b"ext/lib/train.py", b"job.toml", b"train.py"]
    assert _files(project) == [b".gitignore", *files]


def test_the_root_folder(project):
    done = project.cli("submit", "--snapshot", "--", "true", cwd="/")
    assert (done.code, done.err) == (
        3,
        "Error: flags true: a snapshot of / is not taken: change to the folder of your code, "
        "or use --chdir\n1 problem; nothing was submitted.\n",
    )


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_folder_that_cannot_be_read(project, monkeypatch, is_tracked):
    """It would be missing in the copy, as if it had been removed."""
    store = stores.Store(folder=project.folder.parent / "store", environ=dict(os.environ))
    store.folder.parent.chmod(0o700)
    if is_tracked:
        lstat = os.lstat

        def stale(path, **options):
            if str(path).endswith("train.py"):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return lstat(path, **options)

        monkeypatch.setattr(os, "lstat", stale)
        message = f"cannot read {project.folder}/train.py: {os.strerror(errno.ESTALE)}"
    else:
        run = process.run

        def warned(words, *arguments, **options):
            result = run(words, *arguments, **options)
            text = "warning: could not open directory 'data/': Permission denied\n"
            return dataclasses.replace(result, stderr=text) if "--others" in words else result

        monkeypatch.setattr(process, "run", warned)
        message = (
            f"{project.folder}/data cannot be read: Permission denied. Make it readable (chmod "
            "u+rx), or add it to .gitignore."
        )
    with pytest.raises(stores.SnapshotError) as raised:
        worktree.listing(store, project.folder)
    assert str(raised.value) == message

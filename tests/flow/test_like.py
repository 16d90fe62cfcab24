"""A job is run again: checkout and submit --like."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.flow import code_project, reproduction_project


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return reproduction_project.Reproduction(cli, fake_slurm)


def test_checkout_and_rerun_give_the_same_result(project):
    project.edit_line()
    (project.folder / "new.py").write_text("import train\n")
    project.run(1, "--snapshot", "job.toml", "--set", "args.lr=0.2")
    project.git("checkout", "-q", ".")
    (project.folder / "new.py").unlink()
    folder = project.folder / "x" / "again"
    folder.mkdir(parents=True)
    done = project.cli("checkout", "1", "x/again")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"Wrote x/again (3 files, 0.0 MB) and {folder}.toml. To run it again:\n"
        f"  cd {folder}\n"
        f"  orchestrator submit {folder}.toml\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["job.toml", "new.py", "train.py"]
    text = Path(f"{folder}.toml").read_text()
    assert text.startswith(
        "# Written by orchestrator from job 1. Submit it with:\n"
        f"#   cd {folder}\n"
        f"#   orchestrator submit {folder}.toml\n"
    )
    project.rerun(done, 2)
    assert project.result(1) == project.result(2)
    assert b'"version": 2, "arguments": ["--lr", "0.2", "--epochs", "3"]' in project.result(2)
    again = project.cli("checkout", "1", "x/again")
    assert (again.code, again.err) == (
        1,
        f"Error: {folder}.toml, the file for the spec, exists: name a new folder\n",
    )


def test_checkout_without_a_snapshot_names_the_commands(project):
    project.edit_line()
    assert project.cli("submit", "job.toml").code == 0
    commit = project.git("rev-parse", "HEAD").strip()
    branch = project.git("branch", "--show-current").strip()
    again = project.cli.home / "again"
    done = project.cli("checkout", "1", again)
    head, *commands = done.err.splitlines()
    digest = head.split()[-2]
    assert (done.code, head) == (
        4,
        f"Error: 1 has no snapshot: it ran what was in {project.folder}, commit {commit[:12]} with "
        f"changes {digest} ({branch}).",
    )
    assert commands == [
        "These commands restore its tracked files and run them:",
        f"  git -C {project.folder} worktree add --detach {again} {commit}",
        f"  orchestrator show 1 --diff | git -C {again} apply",
        f"  orchestrator submit --like 1 --chdir {again}",
    ]
    project.git("checkout", "-q", ".")
    project.git("worktree", "add", "-q", "--detach", again, commit)
    diff = project.cli("show", "1", "--diff").out
    subprocess.run(["git", "-C", again, "apply"], input=diff, check=True, text=True)
    assert project.cli(*shlex.split(commands[-1])[1:]).code == 0
    project.start(2)
    assert json.loads(project.result(2))["version"] == 2


def test_a_snapshot_runs_again_when_its_folder_is_gone(project):
    inner = project.folder / "experiments"
    inner.mkdir()
    (inner / "run.py").write_text("import lib; print('version', lib.VERSION)\n")
    (project.folder / "lib.py").write_text("VERSION = 1\n")
    environ = {"PYTHONPATH": str(project.folder)}
    words = ("submit", "--snapshot", "--name", "demo", "run.py")
    assert project.cli(*words, cwd=inner, **environ).code == 0
    shutil.rmtree(inner)
    (project.folder / "lib.py").unlink()
    assert project.cli("submit", "--like", "1", cwd=project.cli.home).code == 0
    project.start(2)
    assert project.versions(2) == ["1"]
    again = project.cli.home / "again"
    done = project.cli("checkout", "1", again, **environ)
    assert done.out.splitlines()[1:] == [
        f"  cd {again}/experiments",
        f"  orchestrator submit {again}.toml",
    ]
    project.rerun(done, 3)
    assert project.versions(3) == ["1"]
    assert f'PYTHONPATH = "{again}:{project.folder}"\n' in Path(f"{again}.toml").read_text()
    assert project.cli("submit", "--like", "1", "--no-snapshot").err == (
        f"Error: {inner}, where 1 was submitted, does not exist: create it, or name another folder "
        "with --chdir. Nothing was submitted.\n"
    )


def test_like_runs_the_same_snapshot_with_changes(project):
    project.run(1, "--snapshot", "job.toml")
    project.edit_line()
    elsewhere = project.cli.home
    done = project.cli("submit", "--like", "1", "--set", "args.lr=0.2", cwd=elsewhere)
    assert (done.code, done.out, done.err) == (0, "Submitted batch job 2 (@2, demo)\n", "")
    project.start(2)
    assert json.loads(project.result(2)) == {
        "version": 1,
        "arguments": ["--lr", "0.2", "--epochs", "3"],
    }
    done = project.cli("diff", "1", "2", "--refresh")
    assert reproduction_project.shown(done) == ["", "Arguments:", "  args.lr  0.1 -> 0.2"]
    done = project.cli("submit", "--like", "2", "--snapshot", "--", "--epochs", "4", "--amp")
    assert (done.code, code_project.NOTE.fullmatch(done.err)[1]) == (0, str(project.folder))
    project.start(3)
    assert json.loads(project.result(3)) == {
        "version": 2,
        "arguments": ["--lr", "0.2", "--epochs", "4", "--amp"],
    }
    assert project.cli("submit", "--like", "1").code == 0
    scripts = [project.cli("show", row, "--script").out for row in ("@1", "@4")]
    assert scripts[0] == scripts[1]
    assert project.cli("submit", "--like", "1", "--no-snapshot").code == 0
    assert "Snapshot" not in project.cli("show", "@5", "--code").out


def test_like_a_task_of_an_array(project):
    tasks = "[array]\ntasks = [{ lr = 1 }, { lr = 2, seed = 7 }, { lr = 3 }]\n"
    spec = (project.folder / "job.toml").read_text() + tasks
    (project.folder / "array.toml").write_text(spec)
    assert project.cli("submit", "array.toml").code == 0
    assert project.cli("submit", "--like", "1_1").out == "Submitted batch job 4 (@4, demo)\n"
    project.start(4)
    assert project.arguments(2) == ["--epochs", "3", "--lr", "2", "--seed", "7"]
    done = project.cli("submit", "--like", "1")
    assert done.out == "Submitted batch job 5 (@5-7, demo, 3 tasks)\n"
    done = project.cli("submit", "--like", "1_[0,2]")
    assert done.out == "Submitted batch job 8 (@8-9, demo, 2 tasks)\n"
    assert shown_rows(project, "1_0", "1_1") == [
        ("args.lr", 1, 2),
        ("args.seed", None, 7),
    ]
    done = project.cli("diff", "1", "4")
    assert (done.code, done.err) == (
        6,
        "Error: 1 names 3 tasks of an array: name one of them, such as 1_0\n",
    )
    sized = (project.folder / "job.toml").read_text() + "[array]\nsize = 3\n"
    (project.folder / "array.toml").write_text(sized)
    assert project.cli("submit", "array.toml").code == 0
    done = project.cli("submit", "--like", "10_1")
    assert (done.code, done.err) == (
        6,
        "Error: 10_1 gets its number from SLURM_ARRAY_TASK_ID, which a job of its own does not "
        "have. `orchestrator resubmit 10_1` runs it again without changes, `orchestrator submit "
        "--like 10` the whole array.\n",
    )


def test_checkout_of_a_task_that_slurm_numbers(project):
    """All tasks run the same code; the commands submit all of them."""
    sized = (project.folder / "job.toml").read_text() + "[array]\nsize = 3\n"
    (project.folder / "array.toml").write_text(sized)
    assert project.cli("submit", "--snapshot", "array.toml").code == 0
    home = project.cli.home
    for reference, folder in (("1", "all"), ("1_1", "one"), ("1_[0,2]", "two")):
        done = project.cli("checkout", reference, home / folder)
        quoted = shlex.quote(reference)
        note = (
            f"This submits the whole array; `orchestrator resubmit {quoted}` runs only "
            f"{reference}.\n"
        )
        assert (done.code, done.err) == (0, "" if reference == "1" else note)
        assert (home / folder / "train.py").is_file()
        assert "\n[array]\nsize = 3 " in (home / f"{folder}.toml").read_text()


def shown_rows(project, *names):
    rows = project.cli("diff", *names, "--json").items
    return [(r["key"], r["first"], r["second"]) for r in rows if r["section"] == "arguments"]


def test_like_a_batch_file(project):
    file = project.folder / "job.sbatch"
    file.write_text('#!/bin/bash\n#SBATCH --time=5\necho version "$@"\n')
    cli = project.cli
    assert cli("submit", "--snapshot", "--time-limit", "7", "job.sbatch", "--", "a").code == 0
    assert cli("submit", "--like", "1", "--partition", "accel", "--", "b", cwd=cli.home).code == 0
    project.start(2)
    assert project.log(2) == ["version a b"]
    options = [word for word in project.slurm.calls("sbatch")[-1] if "--" in word]
    assert {"--time=7", "--partition=accel"} <= set(options)
    done = cli("checkout", "2", "again")
    assert done.out.splitlines()[1:] == [
        f"  cd {project.folder}/again",
        "  orchestrator submit ./job.sbatch --set job.time_limit=7 --set job.partition=accel"
        " -- a b",
    ]
    project.rerun(done, 3)
    assert project.log(3) == ["version a b"]
    file.write_text(file.read_text() + "true\n")
    done = cli("submit", "--like", "1")
    assert (done.code, done.err) == (
        6,
        f"Error: {file} has changed since 1 was submitted: `orchestrator resubmit 1` runs the "
        f"script as it was, `orchestrator submit {file}` as it is\n",
    )


def test_what_like_refuses(project):
    cli = project.cli
    cli.spec('[job]\nname = "x"\ntime_limit = "5"\n[launch]\ncommand = "true"\n', "x.toml")
    assert cli("submit", "x.toml", "--dependency", "afterok:1").code != 0
    assert cli("submit", "x.toml").code == 0
    refused = {
        ("train.py",): "--like runs the program of 1: remove train.py, or write arguments after "
        "`--`",
        ("--save-spec", "y.toml"): "--save-spec cannot be combined with --like",
        ("--", "a b"): "-- 'a b': launch.command is a shell line, which takes no arguments",
    }
    for words, message in refused.items():
        done = cli("submit", "--like", "1", *words)
        assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: {message}")
    done = cli("submit", "--like", "1", "--set", "resources.nodes=0")
    assert (done.code, done.err.splitlines()[0]) == (
        3,
        "Error: --set: resources.nodes: must be >= 1 (got 0)",
    )

"""What two jobs differ in, and running one again: diff, checkout, submit --like."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.flow import test_code, test_environments

TRAIN = """\
import json, os, pathlib, sys
result = {"version": 1, "arguments": sys.argv[1:]}
pathlib.Path(os.environ["ORCHESTRATOR_RUN_DIR"], "result.json").write_text(json.dumps(result))
"""
SPEC = """\
[job]
name = "demo"
time_limit = "10"
[environment]
venv = "VENV"
[launch]
launcher = "python"
script = "train.py"
[args]
lr = 0.1
epochs = 3
"""


class Project(test_code.Project):
    """A repository with a program and a spec, and a virtual environment outside of it."""

    def __init__(self, cli, fake_slurm):
        super().__init__(cli, fake_slurm)
        self.venv, _ = test_environments.make_venv(cli.home)
        (self.folder / "train.py").write_text(TRAIN)
        (self.folder / "job.toml").write_text(SPEC.replace("VENV", str(self.venv)))
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "second")

    def install(self, old, new):
        """Replace a package by another version."""
        (folder,) = self.venv.glob(f"lib/python3.*/site-packages/{old}.dist-info")
        folder.rename(folder.with_name(f"{new}.dist-info"))

    def run(self, job_id, *options):
        done = self.cli("submit", *options)
        assert done.code == 0, done
        self.start(job_id)

    def edit_line(self):
        (self.folder / "train.py").write_text(TRAIN.replace('"version": 1', '"version": 2'))


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return Project(cli, fake_slurm)


HEAD = re.compile(r"([AB]): (\d+) \(@\d+, demo\)  COMPLETED after 00:00:\d\d on \S+")


def shown(done):
    """Return the lines of `diff` after those that name the jobs."""
    first, second, *rest = done.out.splitlines()
    assert [HEAD.fullmatch(line)[1] for line in (first, second)] == ["A", "B"]
    return rest


def test_diff_shows_exactly_what_differs(project):
    """One package, one edited line and one argument."""
    project.run(1, "--snapshot", "job.toml")
    project.run(2, "--snapshot", "job.toml")
    same = project.cli("diff", "1", "2")
    assert (same.code, shown(same), same.err) == (0, ["", "No differences."], "")
    project.edit_line()
    project.install("nvidia_nccl_cu12-2.21.5", "nvidia_nccl_cu12-2.26.2")
    project.run(3, "--snapshot", "job.toml", "--set", "args.lr=0.2")
    done = project.cli("diff", "2", "3")
    assert (done.code, done.err) == (1, "")
    commit = project.git("rev-parse", "HEAD")[:12]
    branch = project.git("branch", "--show-current").strip()
    trees = re.findall(r"snapshot ([0-9a-f]{12})", done.out)
    changes = re.findall(r"with changes ([0-9a-f]{8})", done.out)
    assert shown(done) == [
        "",
        "Arguments:",
        "  args.lr  0.1 -> 0.2",
        "",
        "Code:",
        f"  - snapshot {trees[0]} of commit {commit} ({branch})",
        f"  + snapshot {trees[1]} of commit {commit} with changes {changes[0]} ({branch})",
        *(line for line in done.out.splitlines() if line.startswith(("  diff --git", "  index "))),
        "  --- a/train.py",
        "  +++ b/train.py",
        "  @@ -1,3 +1,3 @@",
        "   import json, os, pathlib, sys",
        '  -result = {"version": 1, "arguments": sys.argv[1:]}',
        '  +result = {"version": 2, "arguments": sys.argv[1:]}',
        '   pathlib.Path(os.environ["ORCHESTRATOR_RUN_DIR"], "result.json")'
        ".write_text(json.dumps(result))",
        "",
        "Environment:",
        "  package nvidia-nccl-cu12  2.21.5 -> 2.26.2",
    ]
    rows = project.cli("diff", "2", "3", "--json").items
    assert [(row["section"], row["key"]) for row in rows] == [
        ("arguments", "args.lr"),
        ("code", "version"),
        ("environment", "package nvidia-nccl-cu12"),
    ]
    assert (rows[0]["first"], rows[0]["second"]) == (0.1, 0.2)


def test_show_code(project):
    project.edit_line()
    assert project.cli("submit", "--snapshot", "job.toml").code == 0
    assert project.cli("submit", "job.toml").code == 0
    commit = project.git("rev-parse", "HEAD").strip()
    branch = project.git("branch", "--show-current").strip()
    done = project.cli("show", "1", "--code")
    tree = re.search(r"[0-9a-f]{40}", done.out.split("Snapshot:")[1])[0]
    edit = project.git("diff", "HEAD")
    assert (done.code, done.err, done.out) == (
        0,
        "",
        f"Commit:       {commit}\n"
        f"Branch:       {branch}\n"
        f"Snapshot:     {tree}\n"
        "Content:      2 files, 0.0 MB\n"
        f"Root:         {project.folder}\n"
        f"Submitted in: {project.folder}\n"
        f"\nUncommitted changes:\n{edit}",
    )
    (project.folder / "notes.txt").touch()
    assert project.cli("submit", "job.toml").code == 0
    done = project.cli("show", "3", "--code")
    assert done.out == (
        f"Commit:       {commit}\n"
        f"Branch:       {branch}\n"
        f"Submitted in: {project.folder}\n"
        f"\nUncommitted changes:\n{edit}"
    )
    assert done.err == "There were untracked files, whose content is not recorded.\n"
    assert f"Commit:      {commit[:12]} ({branch}) with uncommitted changes (show --code)\n" in (
        project.cli("show", "3").out
    )


def test_show_code_without_git_and_snapshot(cli, fake_slurm):
    cli.spec('[job]\nname = "demo"\ntime_limit = "5"\n[launch]\ncommand = "true"\n')
    assert cli("submit", "job.toml").code == 0
    done = cli("show", "demo", "--code")
    assert done.out == "The code of 1 is not recorded: no snapshot and no git.\n"
    assert cli("diff", "demo", "@1").err.startswith(
        "The code of 1 is not recorded: no snapshot and no git.\n"
    )


def test_the_commit_of_a_snapshot_stays_that_of_the_first_submission(project):
    project.run(1, "--snapshot", "job.toml")
    first = project.git("rev-parse", "HEAD").strip()
    project.edit_line()
    own = ("-c", "user.name=a", "-c", "user.email=a@b")
    project.git(*own, "commit", "-qam", "third")
    assert project.cli("resubmit", "1").code == 0
    assert project.cli("show", "2", "--code").out.splitlines()[0] == f"Commit:       {first}"
    assert project.cli("diff", "1", "2").code == 1


def result(project, row):
    (path,) = project.cli.rows(f"SELECT run_dir FROM submissions WHERE id = {row}")[0]
    return Path(path, "result.json").read_bytes()


def rerun(project, done, job_id):
    """Run the commands that `checkout` prints."""
    folder, command = (line.removeprefix("  ") for line in done.out.splitlines()[1:])
    again = project.cli(*shlex.split(command)[1:], cwd=Path(shlex.split(folder)[1]))
    assert again.code == 0, again
    project.start(job_id)


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
    rerun(project, done, 2)
    assert result(project, 1) == result(project, 2)
    assert b'"version": 2, "arguments": ["--lr", "0.2", "--epochs", "3"]' in result(project, 2)
    again = project.cli("checkout", "1", "x/again")
    assert (again.code, again.err) == (
        1,
        f"Error: {folder}.toml, the file for the spec, exists: name a new folder\n",
    )


def arguments_of(project, row):
    return json.loads(result(project, row))["arguments"]


def test_like_runs_the_same_snapshot_with_changes(project):
    project.run(1, "--snapshot", "job.toml")
    project.edit_line()
    elsewhere = project.cli.home
    done = project.cli("submit", "--like", "1", "--set", "args.lr=0.2", cwd=elsewhere)
    assert (done.code, done.out, done.err) == (0, "Submitted batch job 2 (@2, demo)\n", "")
    project.start(2)
    assert json.loads(result(project, 2)) == {
        "version": 1,
        "arguments": ["--lr", "0.2", "--epochs", "3"],
    }
    done = project.cli("diff", "1", "2")
    assert shown(done) == ["", "Arguments:", "  args.lr  0.1 -> 0.2"]
    done = project.cli("submit", "--like", "2", "--snapshot", "--", "--epochs", "4", "--amp")
    assert (done.code, test_code.NOTE.fullmatch(done.err)[1]) == (0, str(project.folder))
    project.start(3)
    assert json.loads(result(project, 3)) == {
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
    assert arguments_of(project, 2) == ["--epochs", "3", "--lr", "2", "--seed", "7"]
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
        "have: name the whole array, 10\n",
    )


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
    rerun(project, done, 3)
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


#: A command that prints metrics, in a folder whose program changes.
SWEEP = """\
[job]
name = "grid"
time_limit = "10"
[resources]
ntasks = 1
[launch]
script = "run.py"
[sweep]
kind = "grid"
axes.args.lr = [1, 2]
"""
PRINTS = 'print("epoch 1 loss 0.5 throughput 100 images/s")\n'


def test_comparisons_say_that_the_code_differs(project):
    cli = project.cli
    (project.folder / "run.py").write_text(PRINTS)
    (project.folder / "sweep.toml").write_text(SWEEP)
    project.git("add", ".")
    project.slurm.run_jobs()
    assert cli("sweep", "submit", "sweep.toml").code == 0
    assert cli("wait", "--sweep", "grid").code == 0
    quiet = cli("sweep", "results", "grid", "--metric", "loss")
    assert (quiet.code, "differ" in quiet.err) == (0, False)
    (project.folder / "run.py").write_text(f"{PRINTS}print()\n")
    assert cli("sweep", "rerun", "grid", "--point", "2").code == 0
    assert cli("wait", "--sweep", "grid").code == 0
    names = r"commit [0-9a-f]{12} with changes [0-9a-f]{8}"
    note = re.compile(
        rf"[Tt]he runs differ in their code: 1 ran {names} \(such as 1_0\), 1 ran {names} "
        r"\(such as 3\); `orchestrator diff 1_0 3` shows the differences\.?"
    )
    for command in (
        ("sweep", "results", "grid", "--metric", "loss"),
        ("metrics", "--sweep", "grid", "--compare"),
        ("sweep", "report", "grid"),
    ):
        done = cli(*command)
        assert note.search(done.err), done
    assert cli("baseline", "set", "now", "1_0").code == 0
    done = cli("baseline", "compare", "3", "--against", "now")
    assert note.search(done.err), done


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
    assert json.loads(result(project, 2))["version"] == 2


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
    rerun(project, done, 3)
    assert project.versions(3) == ["1"]
    assert f'PYTHONPATH = "{again}:{project.folder}"\n' in Path(f"{again}.toml").read_text()
    assert project.cli("submit", "--like", "1", "--no-snapshot").err == (
        f"Error: {inner}, where 1 was submitted, does not exist: create it, or name another folder "
        "with --chdir. Nothing was submitted.\n"
    )

"""What two jobs differ in: diff, show --code, and notes of commands that compare runs."""

from __future__ import annotations

import re

import pytest

from tests.flow import reproduction_project


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return reproduction_project.Reproduction(cli, fake_slurm)


def test_diff_shows_exactly_what_differs(project):
    """One package, one edited line and one argument."""
    project.run(1, "--snapshot", "job.toml")
    project.run(2, "--snapshot", "job.toml")
    same = project.cli("diff", "1", "2", "--refresh")
    assert (same.code, reproduction_project.shown(same), same.err) == (
        0,
        ["", "No differences."],
        "",
    )
    project.edit_line()
    project.install("nvidia_nccl_cu12-2.21.5", "nvidia_nccl_cu12-2.26.2")
    project.run(3, "--snapshot", "job.toml", "--set", "args.lr=0.2")
    done = project.cli("diff", "2", "3", "--refresh")
    assert (done.code, done.err) == (1, "")
    commit = project.git("rev-parse", "HEAD")[:12]
    branch = project.git("branch", "--show-current").strip()
    trees = re.findall(r"snapshot ([0-9a-f]{12})", done.out)
    changes = re.findall(r"with changes ([0-9a-f]{8})", done.out)
    assert reproduction_project.shown(done) == [
        "",
        "Arguments:",
        "  args.lr  0.1 -> 0.2",
        "",
        "Code:",
        f"  - snapshot {trees[0]} of commit {commit} ({branch})",
        f"  + snapshot {trees[1]} of commit {commit} with changes {changes[0]} ({branch})",
        "   train.py | 2 +-",
        "   1 file changed, 1 insertion(+), 1 deletion(-)",
        "  ",
        "  diff --git a/train.py b/train.py",
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


def test_a_snapshot_that_was_removed(project):
    project.run(1, "--snapshot", "job.toml")
    project.edit_line()
    project.run(2, "--snapshot", "job.toml")
    store = project.cli.state_dir / "code"
    for reference in (store / "refs" / "snapshots").iterdir():
        reference.unlink()
    done = project.cli("diff", "1", "2", "--refresh")
    assert (done.code, done.err) == (
        1,
        "The snapshot of 1 and 2 is no longer stored: there is no diff of the code.\n",
    )
    assert "\nContent:      no longer stored\n" in project.cli("show", "1", "--code").out
    done = project.cli("checkout", "1", "again")
    assert (done.code, done.err) == (4, "Error: the snapshot of 1 is no longer stored\n")
    assert not (project.folder / "again").exists()


def test_checkout_into_a_name_that_is_not_printable(project):
    """The name is printed, and it is part of a comment in the spec."""
    project.run(1, "--snapshot", "job.toml")
    done = project.cli("checkout", "1", "a\nb")
    assert (done.code, done.err) == (
        1,
        f"Error: {project.folder}/a\\nb: its name is not printable: name another folder\n",
    )
    assert not (project.folder / "a\nb").exists()


def test_without_git_all_but_the_code_is_shown(project):
    project.run(1, "--snapshot", "job.toml")
    project.edit_line()
    project.run(2, "--snapshot", "--time-limit", "11", "job.toml")
    environ = {"PATH": "/nonexistent"}
    reason = (
        "git could not be started: No such file or directory. Snapshots of code need git: install "
        "it, load its module, or submit with --no-snapshot"
    )
    done = project.cli("show", "1", "--code", **environ)
    assert (done.code, f"\nContent:      not known: {reason}\n" in done.out) == (0, True)
    done = project.cli("diff", "1", "2", **environ)
    assert (done.code, "  job.time_limit  10 -> 11\n" in done.out) == (1, True)
    assert f"There is no diff of the code: {reason}.\n" in done.err

"""Code snapshots: what runs is what was submitted."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.flow import code_project


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return code_project.Project(cli, fake_slurm)


def test_the_submitted_version_runs(project):
    """In the first attempt, after a requeue, and when it is submitted again."""
    cli = project.cli
    done = cli("submit", "--snapshot", "job.toml")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    note = code_project.NOTE.fullmatch(done.err)
    assert note is not None and note.groups() == (str(project.folder), "2 files")
    project.edit("two")
    project.start(1)
    assert project.log(1) == ["version one code", "submitted in True"]
    project.slurm.run_jobs()
    project.slurm.requeue(1)
    project.start(1)
    assert project.versions(1) == ["one", "one"]
    assert cli("resubmit", "1").out == "Submitted batch job 2 (@2, demo)\n"
    project.start(2)
    assert cli("submit", "--no-snapshot", "job.toml").out[-9:] == "3, demo)\n"
    project.start(3)
    assert project.versions(2, 3) == ["one", "two"]
    first, second, third = project.run_folders()
    assert (first / "code.tar").samefile(second / "code.tar")
    assert (first / "code.paths").read_text() == ".\n"
    assert not (third / "code.tar").exists()


def test_a_folder_below_the_top_level(project):
    """The same relative working directory, and the neighbours that it imports."""
    inner = project.folder / "experiments" / "a"
    inner.mkdir(parents=True)
    (project.folder / "lib.py").write_text("VERSION = 1\n")
    (inner / "run.py").write_text("import lib; print('version', lib.VERSION, lib.__file__)\n")
    environ = {"PYTHONPATH": f"/nowhere:{project.folder}"}
    done = project.cli("submit", "--snapshot", "--name", "x", "run.py", cwd=inner, **environ)
    assert done.code == 0
    assert done.err.splitlines()[-1] == (
        f"Python would import from {project.folder}: the copy comes first"
    )
    (project.folder / "lib.py").write_text("VERSION = 2\n")
    project.start(1)
    (folder,) = project.run_folders()
    assert project.log(1) == [f"version 1 {folder}/code/lib.py"]
    assert (folder / "code.paths").read_text() == "experiments/a\n.\n"


def test_a_batch_file(project):
    (project.folder / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --time=5\ncd /tmp && cd $SLURM_SUBMIT_DIR && python3 train.py\n"
    )
    assert project.cli("submit", "--snapshot", "job.sbatch").code == 0
    project.edit("two")
    project.start(1)
    assert project.versions(1) == ["one"]


def test_a_local_job(project):
    (project.folder / "run.py").write_text("open('result', 'w').write('x')\n")
    local = ("--scheduler", "local", "--snapshot")
    done = project.cli("submit", *local, "--wait", "--", "python3", "run.py")
    assert (done.code, done.out[-6:]) == (0, " run)\n"), done.err
    (folder,) = project.run_folders()
    assert (folder / "code" / "result").read_text() == "x"
    assert not (project.folder / "result").exists()


def test_a_sweep_shares_one_snapshot(project):
    cli = project.cli
    sweep = '[sweep]\nkind = "grid"\naxes.args.lr = [1, 2]\n'
    cli.spec(code_project.SPEC + code_project.SNAPSHOT + sweep, "sweep.toml")
    dry = cli("sweep", "submit", "--dry-run", "sweep.toml")
    assert (dry.code, "Code" in dry.err) == (0, False)
    done = cli("sweep", "submit", "sweep.toml")
    assert (done.code, len(code_project.NOTE.findall(done.err))) == (0, 1)
    project.edit("two")
    project.start("1_0")
    project.start("1_1")
    rerun = cli("sweep", "rerun", "demo", "--point", "1")
    assert (rerun.code, rerun.out) == (0, "Submitted 1 point of sweep demo (@1)\n")
    project.start(3)
    cli.spec(
        code_project.SPEC + code_project.SNAPSHOT + sweep.replace("[1, 2]", "[1, 2, 3]"),
        "sweep.toml",
    )
    added = cli("sweep", "add", "demo", "sweep.toml")
    assert (added.code, code_project.NOTE.findall(added.err)) == (0, [])
    project.start(4)
    folder, *_ = project.run_folders()
    text = "".join(path.read_text() for path in sorted(folder.glob("*.out")))
    assert re.findall(r"version (\w+)", text) == ["one", "one"]
    assert project.versions(3, 4) == ["one", "one"]


def test_schedules_take_it_now_or_at_the_planned_time(project):
    cli = project.cli
    add = ("--cron", "@yearly", "--tz", "UTC", "job.toml")
    refused = cli("schedule", "add", "x", "--snapshot", "at-add", "--no-snapshot", *add)
    assert (refused.code, refused.err.splitlines()[-1]) == (
        2,
        "Error: use only one of --snapshot and --no-snapshot",
    )
    now = cli("schedule", "add", "now", "--snapshot", "at-add", *add)
    later = cli("schedule", "add", "later", "--snapshot", "at-trigger", *add)
    assert (now.code, later.code) == (0, 0)
    assert (len(code_project.NOTE.findall(now.err)), len(code_project.NOTE.findall(later.err))) == (
        1,
        0,
    )
    project.edit("two")
    for name in ("now", "later"):
        assert cli("schedule", "run", name).code == 0
    project.edit("three")
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "two"]


def _folder_below(project, more=""):
    """Return a folder of the repository with a spec and a program."""
    folder = project.folder / "inner"
    folder.mkdir()
    (project.folder / "train.py").rename(folder / "train.py")
    (folder / "job.toml").write_text(code_project.SPEC + code_project.SNAPSHOT + more)
    return folder


@pytest.mark.parametrize("is_sweep", [False, True])
def test_a_stored_snapshot_runs_without_its_folder(project, is_sweep):
    """At the next planned time, and when it is submitted again."""
    cli = project.cli
    there = _folder_below(
        project, '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n' if is_sweep else ""
    )
    add = ("--cron", "@yearly", "--tz", "UTC")
    for name, words in (("now", ()), ("later", ("--snapshot", "at-trigger"))):
        done = cli("schedule", "add", name, *add, *words, "job.toml", cwd=there)
        assert done.code == 0, done
    there.rename(f"{there}.moved")
    done = cli("schedule", "run", "now")
    assert done.code == 0, done
    project.start(1)
    assert project.log(1) == ["version one code/inner", "submitted in True"]
    done = cli("schedule", "run", "later")
    message = f"Schedule later: by hand: its folder {there} does not exist on this host\n"
    assert (done.code, done.err) == (0, message)
    if not is_sweep:
        assert cli("resubmit", "1").out == "Submitted batch job 2 (@2, demo)\n"
        project.start(2)
        assert project.versions(2) == ["one"]


@pytest.mark.parametrize("key", ["output", "error"])
def test_a_relative_log_of_a_folder_that_is_gone(project, key):
    """Slurm would write it somewhere else."""
    cli = project.cli
    there = _folder_below(project)
    spec = there / "job.toml"
    spec.write_text(spec.read_text().replace("[job]\n", f'[job]\n{key} = "%j.log"\n', 1))
    assert cli("submit", "job.toml", cwd=there).code == 0
    assert cli("schedule", "add", "now", "--cron", "@yearly", "job.toml", cwd=there).code == 0
    project.start(1)
    there.rename(f"{there}.moved")
    message = (
        f"job.{key} %j.log is relative to {there}, which does not exist on this host. Create it, "
        "or submit the job with an absolute path.\n"
    )
    done = cli("resubmit", "1")
    assert (done.code, done.err) == (6, f"Error: {message}")
    done = cli("schedule", "run", "now")
    assert done.err == f"Schedule now: by hand: {message}"
    assert len(cli("status", "--all", "--json").items) == 1


def test_a_local_job_runs_without_its_folder(project):
    cli = project.cli
    there = _folder_below(project)
    local = ("--scheduler", "local", "--wait")
    assert cli("submit", *local, "job.toml", cwd=there).code == 0
    there.rename(f"{there}.moved")
    assert cli("resubmit", "@1").code == 0
    assert cli("wait", "@2").code == 0
    _, second = project.run_folders()
    (log,) = second.glob("*.out")
    assert "version one code/inner\n" in log.read_text()


def test_the_configuration_of_a_folder_that_is_gone(project):
    """It may be what is missing on this host: the planned time waits."""
    cli = project.cli
    there = _folder_below(project)
    (there / "orchestrator.toml").write_text('[profiles.lab]\npartition = "accel"\n')
    cli("config", "trust", cwd=there)
    add = ("schedule", "add", "x", "--cron", "@yearly", "--tz", "UTC", "job.toml")
    done = cli("--profile", "lab", *add, cwd=there)
    assert done.code == 0, done
    there.rename(f"{there}.moved")
    message = (
        f"Schedule x: by hand: its folder {there} does not exist on this host, and without its "
        'orchestrator.toml this is wrong: --profile: profile: no profile "lab". Known: none.\n'
        "1 problem; nothing was done.\n"
    )
    assert cli("schedule", "run", "x").err == message
    there.with_name(f"{there.name}.moved").rename(there)
    assert cli("tick").code == 0
    project.start(1)
    assert project.versions(1) == ["one"]


def test_a_scheduled_sweep_keeps_the_snapshot(project):
    cli = project.cli
    cli.spec(
        code_project.SPEC + code_project.SNAPSHOT + '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n',
        "sweep.toml",
    )
    assert cli("schedule", "add", "x", "--cron", "@yearly", "--tz", "UTC", "sweep.toml").code == 0
    project.edit("two")
    assert cli("schedule", "run", "x").code == 0
    project.start(1)
    assert project.versions(1) == ["one"]


def test_a_graph_has_one_snapshot(project):
    cli = project.cli
    cli.spec(code_project.SPEC.replace('"demo"', '"first"'), "first.toml")
    cli.spec(code_project.SPEC + '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n', "second.toml")
    cli.spec(
        '[graph]\nname = "g"\n[graph.nodes.first]\nspec = "first.toml"\n'
        '[graph.nodes.second]\nspec = "second.toml"\nafter_ok = ["first"]\n',
        "graph.toml",
    )
    done = cli("graph", "submit", "--snapshot", "graph.toml")
    assert (done.code, len(code_project.NOTE.findall(done.err))) == (0, 1), done.err
    project.edit("two")
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "one"]


def test_a_continuation_job_goes_on_in_the_same_copy(project):
    """Also if the folder in which the first job was submitted is gone."""
    cli = project.cli
    retry = '[retry]\nmax_retries = 1\nbackoff_seconds = 0\non = ["node_fail"]\n'
    retry += '[retry.changes]\nnode_fail = { "job.time_limit" = "20" }\n'
    project.edit("one", code=1)
    there = _folder_below(project, retry)
    assert cli("submit", "job.toml", cwd=there).code == 0
    project.start(1)
    there.rename(f"{there}.moved")
    project.slurm.set_state(1, "NODE_FAIL", reason="NodeDown")
    project.slurm.run_jobs(False)
    cli.wait_until(lambda: cli("tick").code == 0 and len(project.slurm.jobs()) > 1, "the retry")
    project.start(2)
    assert project.versions(1, 2) == ["one", "one"]
    first, second = project.run_folders()
    assert (second / "code").readlink() == first / "code"


@pytest.mark.parametrize("unpack", ["run_folder", "node"])
def test_where_it_is_unpacked(project, unpack, tmp_path):
    project.cli.spec(
        code_project.SPEC + code_project.SNAPSHOT + f'unpack = "{unpack}"\n', "job.toml"
    )
    local = tmp_path / "local disk"
    local.mkdir()
    project.slurm.run_jobs()
    assert project.cli("submit", "job.toml", TMPDIR=str(local)).code == 0
    project.slurm.wait_for(1, "COMPLETED")
    (folder,) = project.run_folders()
    assert project.versions(1) == ["one"]
    assert (folder / "code").exists() == (unpack == "run_folder")
    assert list(local.iterdir()) == []
    if unpack == "node":
        there = os.path.relpath(local / "orchestrator-code.1.0.0", folder)
        assert project.log(1)[0] == f"version one {there}"


def test_the_node_folder_of_another_user_is_not_used(project, tmp_path):
    project.cli.spec(code_project.SPEC + code_project.SNAPSHOT + 'unpack = "node"\n', "job.toml")
    taken = tmp_path / "orchestrator-code.1.0.0"
    taken.mkdir()
    (taken / "train.py").write_text("print('version hostile')\n")
    project.slurm.run_jobs()
    assert project.cli("submit", "job.toml", TMPDIR=str(tmp_path)).code == 0
    project.slurm.wait_for(1, "FAILED")
    (folder,) = project.run_folders()
    assert project.slurm.job(1)["exit"] == [73, 0]
    assert project.log(1)[-1] == (
        f"orchestrator: cannot unpack {folder}/code.tar on n1: see the message above"
    )


def test_a_snapshot_that_cannot_be_unpacked(project):
    """Without the archive, and with a damaged one; the next attempt tries again."""
    project.cli("submit", "--snapshot", "job.toml")
    (folder,) = project.run_folders()
    archive = folder / "code.tar"
    content = archive.read_bytes()
    archive.unlink()
    project.start(1)
    assert project.slurm.job(1)["exit"] == [73, 0]
    assert project.log(1) == [
        f"orchestrator: there is no snapshot {archive} on n1: it was removed, or the script was "
        "not submitted with 'orchestrator submit'"
    ]
    explained = project.cli("explain", "1", "--json").items[0]
    assert (explained["cause"], explained["summary"]) == (
        "snapshot",
        project.log(1)[0].removeprefix("orchestrator: "),
    )
    assert explained["cures"][0].endswith("orchestrator resubmit 1")
    archive.write_bytes(content[:700])
    project.slurm.requeue(1)
    project.start(1)
    assert project.log(1)[-1] == (
        f"orchestrator: cannot unpack {archive} on n1: see the message above"
    )
    assert not [path for path in folder.iterdir() if path.name.startswith("code.draft")]
    archive.write_bytes(content)
    project.slurm.requeue(1)
    project.start(1)
    assert project.versions(1) == ["one"]


def test_submodules_and_repositories_inside(project):
    inner = project.folder / "vendor" / "library"
    inner.mkdir(parents=True)
    subprocess.run(["git", "-C", inner, "init", "-q"], check=True)
    (inner / "library.py").write_text("VERSION = 'one'\n")
    (inner / ".gitignore").write_text("*.log\n")
    (inner / "x.log").write_text("ignored\n")
    (project.folder / "train.py").write_text(
        "import sys; sys.path.append('vendor/library')\n"
        "import library; print('version', library.VERSION)\n"
    )
    done = project.cli("submit", "--snapshot", "job.toml")
    note = code_project.NOTE.fullmatch(done.err)
    assert note is not None and note[2] == "4 files"
    (inner / "library.py").write_text("VERSION = 'two'\n")
    assert project.cli("submit", "--snapshot", "job.toml").code == 0
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "two"]
    assert not (project.run_folders()[0] / "code" / "vendor" / "library" / "x.log").exists()


@pytest.mark.parametrize("snapshots", [12, pytest.param(50, marks=pytest.mark.slow)])
def test_snapshots_change_nothing_in_the_repository(project, snapshots):
    """Every fourth is killed at a moment of its own."""
    (project.folder / "data.bin").write_bytes(os.urandom(3_000_000))
    before = _state(project)
    for number in range(snapshots):
        (project.folder / "new.txt").write_text(f"{number}\n")
        process = project.cli.start("submit", "--snapshot", "job.toml")
        if number % 4 == 0:
            try:
                process.communicate(timeout=0.25 + 0.25 * number / snapshots)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    (project.folder / "new.txt").unlink()
    assert _state(project) == before
    assert project.cli("submit", "--snapshot", "job.toml").code == 0
    trees = set(project.trees())
    assert len(trees) > snapshots * 3 // 4
    store = project.cli.state_dir / "code"
    subprocess.run(["git", "--git-dir", store, "fsck", "--strict"], check=True)


def _state(project):
    """Return what git says, the bytes of the index, and all objects."""
    repository = project.folder / ".git"
    status = project.git("--no-optional-locks", "status", "--porcelain")
    objects = sorted(str(path) for path in repository.glob("objects/**/*"))
    return status, (repository / "index").read_bytes(), objects

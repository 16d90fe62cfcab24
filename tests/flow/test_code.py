"""Code snapshots: what runs is what was submitted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

#: Writes its version and its working directory to the log.
TRAIN = """\
import os, sys
print("version", {version!r}, os.path.relpath(os.getcwd(), os.environ["ORCHESTRATOR_RUN_DIR"]))
print("submitted in", os.environ["SLURM_SUBMIT_DIR"] == os.getcwd())
sys.exit({code})
"""
SPEC = """\
[job]
name = "demo"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
"""
SNAPSHOT = "[code]\nsnapshot = true\n"
NOTE = re.compile(r"Code: snapshot [0-9a-f]{12} of (\S+) \((\d+ files?), [0-9.]+ MB\)\n")


class Project:
    """A repository with a program, and the command that submits it."""

    def __init__(self, cli, fake_slurm):
        self.cli, self.slurm = cli, fake_slurm
        self.folder = cli.folder
        self.git("init", "-q")
        self.edit("one")
        (self.folder / "job.toml").write_text(SPEC)
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")

    def git(self, *words):
        command = ["git", "-C", self.folder, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def edit(self, version, *, code=0):
        (self.folder / "train.py").write_text(TRAIN.format(version=version, code=code))

    def start(self, job_id):
        """Let a pending job run to its end."""
        self.slurm.run_jobs()
        self.cli.run(["scontrol", "release", str(job_id)])
        self.slurm.wait_for(job_id, "COMPLETED", "FAILED")
        self.slurm.run_jobs(False)

    def log(self, job_id):
        """Return the lines of a job's program."""
        text = Path(self.slurm.job(job_id)["stdout"].replace("%j", str(job_id))).read_text()
        return [line for line in text.splitlines() if not line.startswith("===")]

    def versions(self, *job_ids):
        return [line.split()[1] for each in job_ids for line in self.log(each) if "version" in line]


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return Project(cli, fake_slurm)


def test_the_submitted_version_runs(project):
    """In the first attempt, after a requeue, and when it is submitted again."""
    cli = project.cli
    done = cli("submit", "--snapshot", "job.toml")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    note = NOTE.fullmatch(done.err)
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
    first, second, third = _by_row(cli)
    assert (first / "code.tar").samefile(second / "code.tar")
    assert (first / "code.paths").read_text() == ".\n"
    assert not (third / "code.tar").exists()


def _by_row(cli):
    return [Path(path) for (path,) in cli.rows("SELECT run_dir FROM submissions ORDER BY rowid")]


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
    (folder,) = _by_row(project.cli)
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


def test_a_sweep_shares_one_snapshot(project):
    cli = project.cli
    sweep = '[sweep]\nkind = "grid"\naxes.args.lr = [1, 2]\n'
    cli.spec(SPEC + SNAPSHOT + sweep, "sweep.toml")
    dry = cli("sweep", "submit", "--dry-run", "sweep.toml")
    assert (dry.code, "Code" in dry.err) == (0, False)
    done = cli("sweep", "submit", "sweep.toml")
    assert (done.code, len(NOTE.findall(done.err))) == (0, 1)
    project.edit("two")
    project.start("1_0")
    project.start("1_1")
    rerun = cli("sweep", "rerun", "demo", "--point", "1")
    assert (rerun.code, rerun.out) == (0, "Submitted 1 point of sweep demo (@1)\n")
    project.start(3)
    cli.spec(SPEC + SNAPSHOT + sweep.replace("[1, 2]", "[1, 2, 3]"), "sweep.toml")
    added = cli("sweep", "add", "demo", "sweep.toml")
    assert (added.code, NOTE.findall(added.err)) == (0, [])
    project.start(4)
    folder, *_ = _by_row(cli)
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
    assert (len(NOTE.findall(now.err)), len(NOTE.findall(later.err))) == (1, 0)
    project.edit("two")
    for name in ("now", "later"):
        assert cli("schedule", "run", name).code == 0
    project.edit("three")
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "two"]


def test_a_scheduled_sweep_keeps_the_snapshot(project):
    cli = project.cli
    cli.spec(SPEC + SNAPSHOT + '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n', "sweep.toml")
    assert cli("schedule", "add", "x", "--cron", "@yearly", "--tz", "UTC", "sweep.toml").code == 0
    project.edit("two")
    assert cli("schedule", "run", "x").code == 0
    project.start(1)
    assert project.versions(1) == ["one"]


def test_a_graph_has_one_snapshot(project):
    cli = project.cli
    cli.spec(SPEC.replace('"demo"', '"first"'), "first.toml")
    cli.spec(SPEC + '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n', "second.toml")
    cli.spec(
        '[graph]\nname = "g"\n[graph.nodes.first]\nspec = "first.toml"\n'
        '[graph.nodes.second]\nspec = "second.toml"\nafter_ok = ["first"]\n',
        "graph.toml",
    )
    done = cli("graph", "submit", "--snapshot", "graph.toml")
    assert (done.code, len(NOTE.findall(done.err))) == (0, 1), done.err
    project.edit("two")
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "one"]


def test_a_continuation_job_goes_on_in_the_same_copy(project):
    cli = project.cli
    retry = '[retry]\nmax_retries = 1\nbackoff_seconds = 0\non = ["node_fail"]\n'
    retry += '[retry.changes]\nnode_fail = { "job.time_limit" = "20" }\n'
    cli.spec(SPEC + SNAPSHOT + retry, "job.toml")
    project.edit("one", code=1)
    assert cli("submit", "job.toml").code == 0
    project.edit("two")
    project.start(1)
    project.slurm.set_state(1, "NODE_FAIL", reason="NodeDown")
    project.slurm.run_jobs(False)
    cli.wait_until(lambda: cli("tick").code == 0 and len(project.slurm.jobs()) > 1, "the retry")
    project.start(2)
    assert project.versions(1, 2) == ["one", "one"]
    first, second = _by_row(cli)
    assert (second / "code").readlink() == first / "code"


@pytest.mark.parametrize("unpack", ["run_folder", "node"])
def test_where_it_is_unpacked(project, unpack, tmp_path):
    project.cli.spec(SPEC + SNAPSHOT + f'unpack = "{unpack}"\n', "job.toml")
    local = tmp_path / "local disk"
    local.mkdir()
    project.slurm.run_jobs()
    assert project.cli("submit", "job.toml", TMPDIR=str(local)).code == 0
    project.slurm.wait_for(1, "COMPLETED")
    (folder,) = _by_row(project.cli)
    assert project.versions(1) == ["one"]
    assert (folder / "code").exists() == (unpack == "run_folder")
    assert list(local.iterdir()) == []
    if unpack == "node":
        there = os.path.relpath(local / "orchestrator-code.1.0.0", folder)
        assert project.log(1)[0] == f"version one {there}"


def test_the_node_folder_of_another_user_is_not_used(project, tmp_path):
    project.cli.spec(SPEC + SNAPSHOT + 'unpack = "node"\n', "job.toml")
    taken = tmp_path / "orchestrator-code.1.0.0"
    taken.mkdir()
    (taken / "train.py").write_text("print('version hostile')\n")
    project.slurm.run_jobs()
    assert project.cli("submit", "job.toml", TMPDIR=str(tmp_path)).code == 0
    project.slurm.wait_for(1, "FAILED")
    (folder,) = _by_row(project.cli)
    assert project.slurm.job(1)["exit"] == [78, 0]
    assert project.log(1)[-1] == (
        f"orchestrator: cannot unpack {folder}/code.tar on n1: see the message above"
    )
    assert (taken / "train.py").exists()


def test_a_snapshot_that_cannot_be_unpacked(project):
    """Without the archive, and with a damaged one; the next attempt tries again."""
    project.cli("submit", "--snapshot", "job.toml")
    (folder,) = _by_row(project.cli)
    archive = folder / "code.tar"
    content = archive.read_bytes()
    archive.unlink()
    project.start(1)
    assert project.slurm.job(1)["exit"] == [73, 0]
    assert project.log(1) == [
        f"orchestrator: there is no snapshot {archive} on n1: submit the job with 'orchestrator "
        "submit'"
    ]
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


def test_render_prints_the_script_that_is_submitted(project):
    cli = project.cli
    rendered = cli("render", "--snapshot", "job.toml")
    assert not (cli.state_dir / "code").exists()
    assert cli("submit", "--snapshot", "--dry-run", "job.toml").out == rendered.out
    assert not (cli.state_dir / "code").exists()
    cli("submit", "--snapshot", "job.toml")
    assert cli("show", "1", "--script").out == rendered.out
    assert cli("render", "job.toml").out != rendered.out


def test_the_profile_and_the_spec_decide(project):
    cli = project.cli
    config = cli.home / ".config" / "orchestrator" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[profiles.x.code]\nsnapshot = true\nmax_file_mb = 1\n")
    assert NOTE.search(cli("submit", "job.toml").err)
    cli.spec(SPEC + "[code]\nsnapshot = false\n", "off.toml")
    for words in (("off.toml",), ("--no-snapshot", "job.toml")):
        assert not NOTE.search(cli("submit", *words).err)
    # A stored job keeps what it was submitted with.
    config.write_text("")
    project.start(1)
    assert cli("resubmit", "1").code == 0
    specs = [json.loads(text)["code"]["tree"] for (text,) in _specs(cli)]
    assert specs[0] is not None and specs == [specs[0], None, None, specs[0]]


def _specs(cli):
    return cli.rows("SELECT spec FROM submissions ORDER BY rowid")


def test_keys_that_only_orchestrator_sets(project):
    cli = project.cli
    cli.spec(SPEC + SNAPSHOT + f'tree = "{"0" * 40}"\n', "job.toml")
    done = cli("submit", "job.toml")
    assert (done.code, done.err) == (
        3,
        "Error: job.toml:9: code.tree: is set when a snapshot is taken: remove it, and set "
        f'code.snapshot = true\n    9 | tree = "{"0" * 40}"\n1 problem; nothing was submitted.\n',
    )
    (cli.folder / "orchestrator.toml").write_text('[profiles.x.code]\nroot = "/"\n')
    done = cli("status")
    assert "code.root: is set when a snapshot is taken: remove it" in done.err


def test_all_problems_are_reported_at_once(project):
    """Files, and paths of the spec that the snapshot does not contain."""
    cli, folder = project.cli, project.folder
    (folder / ".gitignore").write_text("venv\ndata\nx.sif\n")
    for name in ("venv", "data"):
        (folder / name).mkdir()
    (folder / ".env").write_text("KEY=1\n")
    (folder / "link").symlink_to("data")
    more = '[environment]\nvenv = "venv"\n[args]\ndata = "data"\nother = "nowhere"\n'
    cli.spec(SPEC.replace('"train.py"', f'"{folder}/train.py"') + SNAPSHOT + more, "job.toml")
    done = cli("submit", "job.toml")
    outside = "is not part of the snapshot (git ignores it, or it is outside): write"
    assert done.code == 3
    assert done.err.splitlines() == [
        f"args.data: data {outside} {folder}/data",
        "Error: .env: looks like a file with secrets: add it to .gitignore, or accept it with "
        'code.allow = [".env"]',
        f"link: links to data, which is not part of the snapshot: link to {folder}/data, or accept "
        'it with code.allow = ["link"]',
        f"job.toml: launch.script: {folder}/train.py is the file that you edit, not its copy in "
        "the snapshot: write train.py",
        f"job.toml: environment.venv: venv {outside} {folder}/venv",
        "4 problems; nothing was submitted.",
    ]
    assert cli.rows() == []
    cli.spec(SPEC + SNAPSHOT + 'allow = [".env", "l*"]\n', "job.toml")
    assert cli("submit", "job.toml").code == 0


def test_an_editable_install_does_not_win(project):
    folder = project.folder
    (folder / "src" / "package").mkdir(parents=True)
    (folder / "src" / "package" / "__init__.py").write_text("VERSION = 'one'\n")
    (folder / "train.py").write_text("import package; print('version', package.VERSION)\n")
    subprocess.run(["python3", "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (packages,) = (folder / ".venv").glob("lib/python3*/site-packages")
    (packages / "demo.pth").write_text(f"{folder}/src\n")
    (folder / ".gitignore").write_text(".venv\n")
    project.cli.spec(f'{SPEC}{SNAPSHOT}[environment]\nvenv = "{folder}/.venv"\n', "job.toml")
    done = project.cli("submit", "job.toml")
    assert done.err.splitlines()[-1] == (
        f"Python would import from {folder}/src: the copy comes first"
    )
    (folder / "src" / "package" / "__init__.py").write_text("VERSION = 'two'\n")
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
    note = NOTE.fullmatch(done.err)
    assert note is not None and note[2] == "4 files"
    (inner / "library.py").write_text("VERSION = 'two'\n")
    assert project.cli("submit", "--snapshot", "job.toml").code == 0
    project.start(1)
    project.start(2)
    assert project.versions(1, 2) == ["one", "two"]
    assert not (_by_row(project.cli)[0] / "code" / "vendor" / "library" / "x.log").exists()


def test_snapshots_change_nothing_in_the_repository(project):
    """50 of them; every fifth is killed at a moment of its own."""
    (project.folder / "data.bin").write_bytes(os.urandom(3_000_000))
    before = _state(project)
    for number in range(50):
        (project.folder / "new.txt").write_text(f"{number}\n")
        process = project.cli.start("submit", "--snapshot", "job.toml")
        if number % 5 == 0:
            try:
                process.communicate(timeout=0.25 + number / 200)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    (project.folder / "new.txt").unlink()
    assert _state(project) == before
    assert project.cli("submit", "--snapshot", "job.toml").code == 0
    trees = {json.loads(text)["code"]["tree"] for (text,) in _specs(project.cli)}
    assert len(trees) >= 41
    store = project.cli.state_dir / "code"
    subprocess.run(["git", "--git-dir", store, "fsck", "--strict"], check=True)


def _state(project):
    """Return what git says, the bytes of the index, and all objects."""
    repository = project.folder / ".git"
    status = project.git("--no-optional-locks", "status", "--porcelain")
    objects = sorted(str(path) for path in repository.glob("objects/**/*"))
    return status, (repository / "index").read_bytes(), objects

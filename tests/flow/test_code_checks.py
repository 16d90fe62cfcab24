"""Code snapshots: which are taken, and what is refused, with the exact messages."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.flow import code_project


@pytest.fixture(name="project")
def _project(cli, fake_slurm):
    return code_project.Project(cli, fake_slurm)


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
    assert code_project.NOTE.search(cli("submit", "job.toml").err)
    cli.spec(code_project.SPEC + "[code]\nsnapshot = false\n", "off.toml")
    for words in (("off.toml",), ("--no-snapshot", "job.toml")):
        assert not code_project.NOTE.search(cli("submit", *words).err)
    # A stored job keeps what it was submitted with.
    config.write_text("")
    project.start(1)
    assert cli("resubmit", "1").code == 0
    specs = project.trees()
    assert specs[0] is not None and specs == [specs[0], None, None, specs[0]]


def test_keys_that_only_orchestrator_sets(project):
    cli = project.cli
    cli.spec(code_project.SPEC + code_project.SNAPSHOT + f'tree = "{"0" * 40}"\n', "job.toml")
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
    cli.spec(
        code_project.SPEC.replace('"train.py"', f'"{folder}/train.py"')
        + code_project.SNAPSHOT
        + more,
        "job.toml",
    )
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
    cli.spec(code_project.SPEC + code_project.SNAPSHOT + 'allow = [".env", "l*"]\n', "job.toml")
    assert cli("submit", "job.toml").code == 0


def test_programs_and_their_arguments(project):
    """A shell script has to be in the snapshot; the arguments of a batch file are not checked."""
    cli, folder = project.cli, project.folder
    (folder / ".gitignore").write_text("private\n")
    (folder / "private").mkdir()
    for name in ("private/run.sh", "config.yaml"):
        (folder / name).write_text("true\n")
    outside = "is not part of the snapshot (git ignores it, or it is outside): write"
    done = cli("submit", "--snapshot", "private/run.sh")
    assert (done.code, done.err) == (
        3,
        f"Error: flags bash private/run.sh: launch.program: private/run.sh {outside} "
        f"{folder}/private/run.sh\n1 problem; nothing was submitted.\n",
    )
    (folder / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --time=5\ntrue\n")
    words = ("private/run.sh", f"{folder}/config.yaml", f"{folder}/private")
    done = cli("submit", "--snapshot", "job.sbatch", "--", *words)
    assert (done.code, done.err.splitlines()[:-1]) == (
        0,
        [
            f"launch.program: private/run.sh {outside} {folder}/private/run.sh",
            f"launch.program: {folder}/config.yaml is the file that you edit, not its copy in the "
            "snapshot: write config.yaml",
        ],
    )


def test_a_snapshot_that_cannot_be_taken_at_a_planned_time(project):
    """The planned time waits, and the pass goes on."""
    cli = project.cli
    add = ("--cron", "@yearly", "--tz", "UTC", "--snapshot", "at-trigger", "job.toml")
    assert cli("schedule", "add", "x", *add).code == 0
    (cli.state_dir / "code").mkdir(mode=0o700)
    (cli.state_dir / "code" / "indexes").mkdir()
    os.chmod(cli.state_dir / "code", 0o777)
    done = cli("schedule", "run", "x")
    assert "code can be written by every user" in done.err + done.out
    assert cli("tick").code == 0
    os.chmod(cli.state_dir / "code", 0o700)
    (cli.state_dir / "code" / "indexes").rmdir()
    (cli.state_dir / "code").rmdir()
    assert cli("tick").code == 0
    project.start(1)
    assert project.versions(1) == ["one"]


def test_the_home_folder(project):
    (project.cli.home / "train.py").write_text("")
    done = project.cli("submit", "--snapshot", "train.py", cwd=project.cli.home)
    assert (done.code, done.err) == (
        3,
        "Error: flags train.py: a snapshot of the home folder is not taken: change to the folder "
        "of your code, or use --chdir\n1 problem; nothing was submitted.\n",
    )


def test_an_editable_install_does_not_win(project):
    folder = project.folder
    (folder / "src" / "package").mkdir(parents=True)
    (folder / "src" / "package" / "__init__.py").write_text("VERSION = 'one'\n")
    (folder / "train.py").write_text("import package; print('version', package.VERSION)\n")
    subprocess.run(["python3", "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (packages,) = (folder / ".venv").glob("lib/python3*/site-packages")
    (packages / "demo.pth").write_text(f"{folder}/src\n")
    (folder / ".gitignore").write_text(".venv\n")
    project.cli.spec(
        f'{code_project.SPEC}{code_project.SNAPSHOT}[environment]\nvenv = "{folder}/.venv"\n',
        "job.toml",
    )
    done = project.cli("submit", "job.toml")
    assert done.err.splitlines()[-1] == (
        f"Python would import from {folder}/src: the copy comes first"
    )
    (folder / "src" / "package" / "__init__.py").write_text("VERSION = 'two'\n")
    project.start(1)
    assert project.versions(1) == ["one"]


def test_points_that_run_elsewhere(project):
    """In another working tree, and points that are added in another folder."""
    cli, folder = project.cli, project.folder
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    for place in (folder, elsewhere):
        (place / "train.py").write_text("")
    axes = f'[sweep]\nkind = "grid"\naxes.job.chdir = ["{folder}", "{elsewhere}"]\n'
    spec = cli.spec(code_project.SPEC + code_project.SNAPSHOT + axes, "two.toml")
    done = cli("schedule", "add", "x", "--cron", "@yearly", "--tz", "UTC", spec)
    assert (done.code, done.err.splitlines()[-2:]) == (
        3,
        [
            f"Error: {spec}: job.chdir: the points of the sweep run in different working trees: "
            "submit one sweep for each",
            "1 problem; nothing was submitted.",
        ],
    )
    assert cli("sweep", "submit", spec).code == 0
    assert len(set(project.trees())) == 2
    one = code_project.SPEC + code_project.SNAPSHOT + '[sweep]\nkind = "grid"\n'
    spec = cli.spec(one + "axes.args.lr = [1]\n", "one.toml")
    assert cli("sweep", "submit", "--name", "one", spec).code == 0
    spec.write_text(one + "axes.args.lr = [1, 2]\n")
    done = cli("sweep", "add", "one", spec, cwd=elsewhere)
    assert (done.code, done.err) == (
        3,
        f"Error: {spec}: job.chdir: {elsewhere} is not in {folder}, the folder of the snapshot\n"
        "1 problem; nothing was submitted.\n",
    )

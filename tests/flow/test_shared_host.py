"""A host with other users: their files and those of a cloned repository are not trusted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.flow import command_line

ALICE, EVE = 4711, 4712
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root to act as another user")
LOCAL = ("--scheduler", "local", "--launcher", "python")


@dataclasses.dataclass(frozen=True, kw_only=True)
class User:
    """A user of the host, without any rights on the files of others."""

    uid: int
    home: Path
    python: str

    def run(self, *argv: str, cwd: Path, **environ: str) -> command_line.Done:
        """Run the command as this user."""
        process = subprocess.Popen(
            [self.python, "-m", "orchestrator", *argv],
            cwd=cwd,
            env={
                **{"HOME": str(self.home), "PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC"},
                **{"XDG_CONFIG_DIRS": str(self.home / "no-site"), "PYTHONDONTWRITEBYTECODE": "1"},
                **{"PYTHONPATH": python_path(), **environ},
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            user=self.uid,
            group=self.uid,
            extra_groups=[],
            umask=0o022,
        )
        return command_line.finish(process)

    def write(self, path: Path, text: str) -> Path:
        """Write a file as this user has it, in folders of the user."""
        missing = [above for above in (path, *path.parents) if not above.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for made in missing:
            os.chown(made, self.uid, self.uid)
        return path


def python_path() -> str:
    """Return where any Python of this version finds the command and what it needs."""
    packages = str(Path(click.__file__).parents[1])
    return os.pathsep.join([str(command_line.CHECKOUT), packages])


@pytest.fixture
def host() -> Iterator[Path]:
    """A folder that every user may enter, which the one of pytest is not."""
    folder = Path(tempfile.mkdtemp(prefix="orchestrator-host-"))
    folder.chmod(0o755)
    yield folder
    # A keeper writes until it ends, shortly after its job.
    deadline = time.monotonic() + command_line.TIMEOUT_SECONDS
    while processes_naming(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(folder)


def processes_naming(folder: Path) -> list[Path]:
    """Return the processes whose command line contains the folder."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                processes.append(path)
    return processes


@pytest.fixture
def alice(host: Path) -> User:
    return user(host, ALICE)


@pytest.fixture
def eve(host: Path) -> User:
    return user(host, EVE)


def user(host: Path, uid: int) -> User:
    """Return a user with a home; skips where no Python can be run by another user."""
    home = host / f"home-{uid}"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        candidate = User(uid=uid, home=home, python=python)
        try:
            if candidate.run("--version", cwd=home).code == 0:
                return candidate
        except OSError:
            # Its folder is not for others: a Python in root's home.
            continue
    pytest.skip(f"no {version} and checkout that another user can run")


def test_a_cloned_repository_starts_nothing(cli, tmp_path):
    clone, source = tmp_path / "clone", tmp_path / "source"
    source.mkdir()
    (source / ".git").mkdir()
    (source / "orchestrator.toml").write_text('state_dir = ".state"\n')
    (source / "evil.sh").write_text(f"touch {tmp_path}/canary\n")
    # Made by its author on a busy machine: the second job waits, with a program for bash to run.
    state = {"ORCHESTRATOR_STATE_DIR": str(source / ".state"), "ORCHESTRATOR_LOCAL_SLOTS": "1"}
    state |= {"ORCHESTRATOR_RUNS_DIR": str(tmp_path / "runs"), "CUDA_VISIBLE_DEVICES": ""}
    (source / "long.py").write_text("import time; time.sleep(600)")
    away = tmp_path / "away"
    away.mkdir()
    sent = cli("submit", *LOCAL, "--name", "a", "--", source / "long.py", cwd=away, **state)
    assert sent.code == 0, sent.err
    state["BASH_ENV"] = str(source / "evil.sh")
    sent = cli("submit", *LOCAL, "--name", "b", "--", source / "long.py", cwd=away, **state)
    assert sent.code == 0, sent.err
    # Until then its queue is written.
    cli.wait_until(
        lambda: cli("status", "a", "--json", cwd=away, **state).items[0]["state"] == "RUNNING"
    )
    shutil.copytree(source, clone)
    try:
        done = cli("cancel", "b", "a", cwd=away, **state)
        assert done.code == 0, done.err
        queue = clone / ".state" / "local" / "queue"
        before = {path.name: path.read_bytes() for path in queue.iterdir()}
        assert len(before) == 2
        (tmp_path / "canary").unlink(missing_ok=True)
        done = cli("status", cwd=clone)
        after = {path.name: path.read_bytes() for path in queue.iterdir()}
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            f"Error: {clone}/orchestrator.toml:1: state_dir: not allowed in a project's file; set "
            "the variable ORCHESTRATOR_STATE_DIR instead\n"
            '    1 | state_dir = ".state"\n'
            "1 problem; nothing was done.\n"
            "A project's file may only describe jobs. Move these keys to "
            f"{cli.home}/.config/orchestrator/config.toml, or review the file and run "
            f"`orchestrator trust {clone}`.\n"
        )
        assert after == before and not (tmp_path / "canary").exists()
    finally:
        # What an old version starts in the clone.
        cli("cancel", "b", cwd=away, **state | {"ORCHESTRATOR_STATE_DIR": str(clone / ".state")})


PLANTED = {
    "templates_dir": 'templates_dir = "templates"\n',
    "variables": '[profiles.x]\nvariables = { BASH_ENV = "/tmp/planted" }\n',
    "modules": '[profiles.x]\nmodules = ["/tmp/planted"]\n',
}


@needs_root
@pytest.mark.parametrize("key", PLANTED)
def test_a_file_that_another_user_put_above(host, alice, eve, key):
    scratch = host / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    work = scratch / "alice"
    work.mkdir(mode=0o700)
    os.chown(work, ALICE, ALICE)
    eve.write(scratch / ".git" / "HEAD", "")
    eve.write(scratch / "templates" / "environment.sh.j2", "touch /tmp/planted\n")
    path = eve.write(scratch / "orchestrator.toml", PLANTED[key])
    words = ("render", "--name", "x", "--scheduler", "slurm", "--", "train.py")
    done = alice.run(*words, cwd=work)
    assert done.code == 0, done.err
    assert "planted" not in done.out
    assert done.err == (
        f"{path} is not read: {path} belongs to user ID {EVE}. Accept it with "
        f'`shared_folders = ["{scratch}"]` in your own configuration, or review the file and run '
        f"`orchestrator trust {scratch}`.\n"
    )
    # Alice may decide otherwise, for what is there now.
    assert alice.run("trust", "..", cwd=work).code == 0
    done = alice.run(*words, cwd=work)
    if key == "templates_dir":
        # What eve can change after it was reviewed is no template, trusted or not.
        assert (done.code, done.out) == (3, "")
        assert f"belongs to user ID {EVE}" in done.err
    else:
        assert (done.code, done.err) == (0, "")
        assert "planted" in done.out
    eve.write(path, PLANTED[key] + "# more\n")
    done = alice.run(*words, cwd=work)
    assert "planted" not in done.out
    assert f"user ID {EVE}, and it changed since you trusted it. Accept " in done.err


@needs_root
def test_hung_lock_of_the_spool(host, alice, eve):
    """A lock that others can open for reading is enough for flock(2), and keeps its owner out."""
    work = host / "work"
    work.mkdir()
    os.chown(work, ALICE, ALICE)
    words = ("submit", *LOCAL, "--name", "x", "--command", "true")
    assert alice.run(*words, cwd=work).code == 0
    lock = alice.home / ".local/state/orchestrator/local/lock"
    # As `chmod -R go+rX` leaves it, to show somebody the runs.
    for path in (lock, *lock.parents[:5]):
        path.chmod(0o755)
    assert alice.run("status", "--refresh", cwd=work).code == 0
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


@needs_root
def test_a_user_without_a_name(host, alice):
    """In a container, or while LDAP is down, the user is missing in the user database."""
    done = alice.run("submit", *LOCAL, "--name", "x", "--command", "true", cwd=alice.home)
    assert done.code == 0, done.err
    (record,) = (alice.home / "orchestrator-runs").glob("*/provenance.json")
    assert json.loads(record.read_text())["user"] == str(ALICE)


@needs_root
def test_another_users_configuration_is_an_error(host, alice, eve):
    path = alice.write(alice.home / ".config/orchestrator/config.toml", "")
    os.chown(path.parent, EVE, EVE)
    done = alice.run("status", cwd=alice.home)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"Error: {path}: not safe to read: {path.parent} belongs to user ID {EVE}. Accept it with "
        f'`shared_folders = ["{path.parent}"]` in your own configuration; for this file, '
        "set the variable ORCHESTRATOR_SHARED_FOLDERS instead\n"
        "1 problem; nothing was done.\n"
    )
    variable = {"ORCHESTRATOR_SHARED_FOLDERS": str(path.parent)}
    done = alice.run("status", cwd=alice.home, **variable)
    assert (done.code, done.err) == (0, "")


@needs_root
def test_a_group_works_in_one_folder(host, alice):
    team = host / "team"
    team.mkdir()
    team.chmod(0o2770)
    os.chown(team, EVE, ALICE)
    (team / "orchestrator.toml").write_text('[profiles.x]\npartition = "gpu"\n')
    words = ("render", "--name", "x", "--scheduler", "slurm", "--", "train.py")
    assert "is not read: " in alice.run(*words, cwd=team).err
    alice.write(alice.home / ".config/orchestrator/config.toml", f'shared_folders = ["{team}"]')
    done = alice.run(*words, cwd=team)
    assert (done.code, done.err) == (0, "")
    assert "--partition=gpu" in done.out


@pytest.mark.parametrize("name", ["orchestrator.toml", "user", "patterns.toml", "job.toml"])
def test_pipe_instead_of_a_file(cli, name):
    user_file = cli.home / ".config/orchestrator/config.toml"
    path = user_file if name == "user" else cli.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    words = ["patterns", "list"]
    if name == "job.toml":
        words = ["render", str(path)]
    if name == "patterns.toml":
        (cli.folder / "orchestrator.toml").write_text('pattern_files = ["patterns.toml"]\n')
    done = cli(*words)
    ending = "submitted" if name == "job.toml" else "done"
    assert done.err == (
        f"Error: {path}: cannot be read: not a regular file but a FIFO\n"
        f"1 problem; nothing was {ending}.\n"
    )
    assert (done.code, done.out) == (3, "")


def test_device_or_sparse_file_instead_of_a_file(cli):
    path = cli.folder / "orchestrator.toml"
    path.symlink_to("/dev/zero")
    assert cli("status").err == (
        f"{path} is not read: /dev/zero can be written by every user. Review the file and run "
        f"`orchestrator trust {cli.folder}`.\n"
    )
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**40)
    assert cli("status").err == (
        f"Error: {path}: larger than 4 MiB: not a TOML file that a person wrote\n"
        "1 problem; nothing was done.\n"
    )


def test_trust_shows_records_lists_and_removes(cli):
    path = cli.folder / "orchestrator.toml"
    escape = "\x1b]0;owned\x07"
    path.write_text(
        f'runs_dir = "runs"\ntemplates_dir = "t"\n[notices."{json.dumps(escape)[1:-1]}"]\n'
        'kind = "webhook"\nurl = "https://host/s3cret"\n'
    )
    (cli.folder / "t").mkdir()
    (cli.folder / "t" / "own.j2").write_text("")
    shown = cli("trust", ".")
    assert (shown.code, shown.out) == (
        0,
        f'runs_dir = "{cli.folder}/runs"\n'
        f'templates_dir = "{cli.folder}/t"\n'
        'notices."\\x1b]0;owned\\x07".kind = "webhook"\n'
        'notices."\\x1b]0;owned\\x07".url = "https://host/***"\n'
        f"# also trusted: {cli.folder}/t/own.j2\n",
    )
    assert shown.err == (f"Trusted {path} with these settings. Any change to it ends the trust.\n")
    path.write_text('runs_dir = "runs"\n')
    assert cli("trust", "--list", "--json").items == [{"path": str(path), "state": "changed"}]
    assert "the file, which changed since you trusted it, and run" in cli("status").err
    assert cli("trust", cli.folder).code == 0
    assert cli("trust", "--list").out == f"path\tstate\n{path}\ttrusted\n"
    rows = [row.split("\t") for row in cli("config", "show", "--origin").out.splitlines()]
    assert ["runs_dir", f"{cli.folder}/runs", f"{path}:1"] in rows
    assert rows[-1] == ["project_file", str(path), "trusted"]
    # One record, private whatever the umask is.
    (record,) = (cli.home / ".local/share/orchestrator/trusted").iterdir()
    modes = [stat.S_IMODE(item.stat().st_mode) for item in (record, *record.parents[:2])]
    assert (record.read_text(), modes) == (f"{path}\n", [0o600, 0o700, 0o700])
    removed = cli("trust", "--remove", ".")
    assert (removed.code, removed.err) == (0, f"{path} is no longer trusted\n")
    again = cli("trust", "--remove", ".")
    assert (again.code, again.err) == (4, f"Error: {path} was not trusted\n")
    assert cli("status").code == 3
    path.unlink()
    missing = cli("trust", ".")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err == (
        f"Error: {path}: cannot be read: No such file or directory\n1 problem; nothing was done.\n"
    )
    assert cli("trust").code == 2 and cli("trust", "--list", ".").code == 2


def test_a_template_that_changes_after_the_trust(cli):
    path = cli.folder / "orchestrator.toml"
    path.write_text('templates_dir = "t"\n')
    template = cli.folder / "t" / "environment.sh.j2"
    template.parent.mkdir()
    template.write_text("echo reviewed\n")
    words = ("render", "--name", "x", "--", "train.py")
    assert cli("trust", ".").code == 0
    assert "echo reviewed" in cli(*words).out
    template.write_text("echo planted\n")
    done = cli(*words)
    assert (done.code, done.out) == (3, "")
    assert "the file, which changed since you trusted it, and run" in done.err


def test_a_command_runs_the_file_that_was_trusted(cli):
    (cli.folder / "orchestrator.toml").write_text(
        '[notices.x]\nkind = "command"\ncommand = ["sh", "tools/notify.sh"]\n'
    )
    elsewhere = cli.folder / "sub"
    for folder, word in ((cli.folder, "reviewed"), (elsewhere, "planted")):
        (folder / "tools").mkdir(parents=True)
        (folder / "tools" / "notify.sh").write_text(f"touch {cli.home}/{word}\n")
    (cli.folder / ".git").mkdir()
    assert cli("trust", ".").code == 0
    done = cli("notices", "test", "x", cwd=elsewhere)
    assert done.code == 0, done.err
    assert (cli.home / "reviewed").exists() and not (cli.home / "planted").exists()


def test_controller_ends_when_the_trusted_file_changes(cli):
    (cli.folder / "orchestrator.toml").write_text('templates_dir = "t"\n')
    template = cli.folder / "t" / "environment.sh.j2"
    template.parent.mkdir()
    template.write_text("echo reviewed\n")
    assert cli("trust", ".").code == 0
    process = cli.start("serve", "--interval", "1")
    try:
        cli.wait_until(lambda: (cli.state_dir / "controller.json").exists(), "the first pass")
        template.write_text("echo planted\n")
        out, err = process.communicate(timeout=command_line.TIMEOUT_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 3, out
    assert err == (
        f"Error: {cli.folder}/orchestrator.toml: the file, or one that is trusted with it, changed "
        f"since it was read. Review it, run `orchestrator trust {cli.folder}`, then start the "
        "command again\n1 problem; nothing was done.\n"
    )


def test_a_command_of_the_user_runs_in_no_clone(cli):
    path = cli.home / ".config/orchestrator/config.toml"
    path.parent.mkdir(parents=True)
    words = [sys.executable, "-m", "json.tool"]
    path.write_text(f'[notices.x]\nkind = "command"\ncommand = {json.dumps(words)}\n')
    (cli.folder / "json.py").write_text(f"open({str(cli.home / 'planted')!r}, 'w')\n")
    done = cli("notices", "test", "x")
    assert done.code == 0, done.err
    assert not (cli.home / "planted").exists()


@needs_root
def test_a_command_that_its_owner_can_change_after_the_trust(host, alice, eve):
    project = host / "project"
    path = eve.write(
        project / "orchestrator.toml",
        '[notices.x]\nkind = "command"\ncommand = ["sh", "notify.sh"]\n',
    )
    eve.write(project / "notify.sh", "true\n")
    assert alice.run("trust", ".", cwd=project).code == 0
    done = alice.run("notices", "test", "x", cwd=project)
    assert (done.code, done.out) == (3, "")
    assert f"{path}:3: notices.x.command: runs {project}/notify.sh, which is not safe: " in done.err
    assert f"{project} belongs to user ID {EVE}. Accept it with `shared_folders" in done.err
    accepted = {"ORCHESTRATOR_SHARED_FOLDERS": str(project)}
    assert alice.run("notices", "test", "x", cwd=project, **accepted).code == 0


def test_doctor_reports_the_project_file(cli):
    path = cli.folder / "orchestrator.toml"

    def check() -> dict[str, str] | None:
        rows = [row for row in cli("doctor", "--json").items if row["check"] == "project file"]
        return rows[0] if rows else None

    assert check() is None
    path.write_text('[profiles.x]\npartition = "gpu"\n')
    result = {"check": "project file", "outcome": "ok", "found": f"{path}, not trusted", "cure": ""}
    assert check() == result
    path.write_text('state_dir = ".state"\ntemplates_dir = "t"\n')
    assert check() == {
        "check": "project file",
        "outcome": "bad",
        "found": f"{path} is refused: it sets state_dir, templates_dir",
        "cure": "move these keys to your own configuration, or review the file and run "
        f"`orchestrator trust {cli.folder}`",
    }
    (cli.folder / "t").mkdir()
    assert cli("trust", ".").code == 0
    assert check() == result | {"found": f"{path}, trusted"}
    cli("trust", "--remove", ".")
    cli.folder.chmod(0o777)
    assert check() == {
        "check": "project file",
        "outcome": "warning",
        "found": f"{path} is not read: {cli.folder} can be written by every user",
        "cure": f"run `chmod go-w {cli.folder}`, or review the file and run "
        f"`orchestrator trust {cli.folder}`",
    }
    assert cli("config", "show", "--origin").out.splitlines()[-1] == (
        f"project_file\t{path}\tnot read"
    )


def test_warning_is_printed_once_and_not_in_completions(cli):
    (cli.folder / "orchestrator.toml").write_text("")
    cli.folder.chmod(0o777)
    done = cli("submit", "--name", "x", "--", "train.py")
    assert done.code == 0
    assert done.err.count("is not read") == 1
    completing = {"_ORCHESTRATOR_COMPLETE": "bash_complete", "COMP_WORDS": "orchestrator show "}
    done = cli("show", COMP_CWORD="2", **completing)
    assert "1" in done.out and done.err == ""


def test_a_planned_time_follows_the_same_rules(cli, fake_slurm):
    data = {"XDG_DATA_HOME": str(cli.home / "data")}
    path = cli.folder / "orchestrator.toml"
    path.write_text('[profiles.x]\npartition = "gpu"\n')
    spec = cli.spec('[job]\nname = "x"\n[launch]\nlauncher = "python"\nscript = "t.py"\n')
    (cli.folder / "t.py").touch()
    added = cli("schedule", "add", "x", "--cron", "0 2 * * *", "--tz", "UTC", spec, **data)
    assert added.code == 0, added.err
    elsewhere = cli.home / "elsewhere"
    elsewhere.mkdir()

    def fire() -> command_line.Done:
        return cli("schedule", "run", "x", cwd=elsewhere)

    path.write_text('[profiles.x]\npartition = "gpu"\nvariables = { BASH_ENV = "/x" }\n')
    refused = fire()
    assert f"{path}:3: profiles.x.variables: not allowed in a project's file" in refused.err
    assert f"review the file and run `orchestrator trust {cli.folder}`." in refused.err
    assert fake_slurm.jobs() == []
    # The records that count are those of the variables that the schedule was added with.
    assert cli("trust", cli.folder).code == 0
    assert "not allowed in a project's file" in fire().err
    assert cli("trust", cli.folder, **data).code == 0
    fired = fire()
    assert fired.code == 0, fired.err
    assert len(fake_slurm.jobs()) == 1
    # Left out: the schedule continues without it if possible.
    fake_slurm.set_state(1, "COMPLETED")
    assert cli("refresh").code == 0
    path.write_text("")
    cli.folder.chmod(0o777)
    note = f"{path} is not read: {cli.folder} can be written by every user, and it changed "
    failed = fire()
    assert note in failed.err, failed.err
    assert '--profile: profile: no profile "x". Known: none.\n' in failed.err
    user = cli.home / ".config/orchestrator/config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[profiles.x]\n")
    ignored = fire()
    assert ignored.code == 0 and ignored.err.startswith(note)
    assert len(fake_slurm.jobs()) == 2

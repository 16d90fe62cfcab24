"""`doctor --host`, `setup --host` and `status --all-hosts`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import config
from orchestrator.controller.hosts import gathering
from orchestrator.controller.remote import connection
from tests import zygote
from tests.flow import command_line
from tests.flow.remote_site import Site, write_program


@pytest.fixture
def site(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as made:
        yield made


def python(site: Site, line: str) -> Path:
    """Let all names of Python on PATH of the host print `line`, the answer of a version."""
    folder = site.host.home / "pythons"
    folder.mkdir(exist_ok=True)
    path = folder / "python3"
    write_program(path, f"echo 'probe python {line} {path}'")
    for name in ("python", *(f"python3.{minor}" for minor in range(11, 15))):
        write_program(folder / name, "exit 1")
    return folder


def checks(site: Site) -> dict[str, tuple[str, str, str]]:
    """What doctor shows: name -> outcome, found, cure."""
    done = site.laptop("doctor", "--host", "mill", "--json")
    assert done.code in (0, 1), done
    return {item["check"]: (item["outcome"], item["found"], item["cure"]) for item in done.items}


def test_doctor_of_a_host(site: Site) -> None:
    folder = python(site, "3.12.4 venv")
    site.path = f"{folder}:{site.path}"
    site.set_host()
    done = site.laptop("doctor", "--host", "mill")
    name = done.out.partition("mill is ")[2].partition("\n")[0].strip()
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "check\toutcome\tfound\tcure\n"
        f"ssh\tok\tmill is {name}\t\n"
        "start-up files\tok\tprint nothing\t\n"
        "orchestrator\tok\t0.1.0, as here\t\n"
        f"Python\tok\t3.12.4, {folder}/python3\t\n"
        "slurm commands\tok\tall on PATH\t\n"
        "clock\tok\tsame as here\t\n"
    )
    # Nothing of it is on the command line of ssh, and one login suffices.
    assert site.calls == [["-T", "--", "mill", "sh"]]


def test_doctor_of_a_host_that_lacks_everything(site: Site) -> None:
    folder = python(site, "3.9.21 old")
    site.set_host(
        noise="echo Welcome; echo to the cluster; ", PATH=f"{folder}:/usr/bin:/bin", SHELL="/bin/sh"
    )
    found = checks(site)
    assert found["start-up files"] == (
        "warning",
        "print 2 lines: Welcome",
        "harmless here, but scp fails: let it print only on a terminal; for bash: "
        "`[[ $- == *i* ]] || return` before it",
    )
    assert found["orchestrator"] == (
        "bad",
        "orchestrator is not installed on mill, or neither in ~/.local/bin nor on PATH of a "
        "command that ssh runs",
        "`orchestrator setup --host mill` installs it; if it is elsewhere, set remote_command = "
        '["/path/of/orchestrator", "agent", "--stdio"] in [hosts.mill]',
    )
    assert found["slurm commands"] == (
        "warning",
        "not on PATH: sbatch, squeue, sacct, scontrol, scancel, srun",
        "connect to a login node, or load the module that provides Slurm in a start-up file; "
        "without Slurm, jobs run on the host itself",
    )
    done = site.laptop("doctor", "--host", "mill")
    failed = sum(outcome == "bad" for outcome, _, _ in found.values())
    assert done.err.splitlines()[-1] == f"Error: {failed} of 6 checks failed"


def test_doctor_without_a_connection(site: Site) -> None:
    site.set_host(instead=("", 255))
    assert checks(site) == {
        "ssh": (
            "bad",
            "ssh cannot connect to mill, see its message above",
            "`ssh mill` has to work first",
        )
    }
    # A restricted shell.
    site.set_host(instead=("This account is not available.\n", 1))
    assert checks(site) == {
        "ssh": (
            "bad",
            "`sh` on mill ended with exit code 1 and did not run the checks, but printed: This "
            "account is not available.",
            "the account needs a login shell that runs commands; a start-up file must not end it, "
            "start another program or read stdin",
        )
    }


def test_doctor_with_a_key_that_may_only_start_the_agent(site: Site) -> None:
    greeting = {"protocols": [1, 1], "version": "0.2.0", "host": "login1", "store": "x"}
    site.set_host(instead=(f"\norchestrator-agent: {json.dumps(greeting)}\n", 0))
    assert checks(site) == {
        "ssh": (
            "warning",
            "mill is login1; this key may only start the agent",
            "nothing to do; a key without command=... in authorized_keys shows more",
        ),
        "start-up files": ("ok", "print nothing", ""),
        "orchestrator": ("ok", "0.2.0, 0.1.0 here; they understand each other", ""),
    }


def test_doctor_finds_slurm_in_a_login_shell_and_a_clock_that_is_wrong(site: Site) -> None:
    programs = site.path.partition(":")[0]
    (site.host.home / ".bash_profile").write_text(f"PATH={site.path}\n")
    write_program(Path(programs, "date"), "echo 1000000000")
    site.set_host(PATH=f"{programs}:/usr/bin:/bin")
    found = checks(site)
    assert found["slurm commands"] == (
        "bad",
        "only on PATH of a login shell",
        'set remote_command = ["bash", "-lc", "PATH=$PATH:$HOME/.local/bin; exec orchestrator '
        'agent --stdio"] in [hosts.mill]',
    )
    outcome, seconds, cure = found["clock"]
    assert outcome == "warning"
    assert seconds.startswith("this computer is ") and seconds.endswith(" s ahead of the host")
    assert cure == (
        "synchronise the clock of this computer (`timedatectl set-ntp true`), or tell the host's "
        "administrators"
    )
    words = ["bash", "-lc", "PATH=$PATH:$HOME/.local/bin; exec orchestrator agent --stdio"]
    site.configure(remote_command=words)
    assert checks(site)["slurm commands"] == (
        "ok",
        "all on PATH of a login shell, which remote_command starts",
        "",
    )
    assert site("status").code == 0


def test_setup_without_a_connection(site: Site, tmp_path: Path) -> None:
    (tmp_path / "orchestrator-0.1.0-py3-none-any.whl").write_bytes(b"a wheel")
    site.set_host(instead=("", 255))
    done = site.laptop("setup", "--host", "mill", "--wheels", tmp_path)
    assert (done.code, done.err) == (
        255,
        "Error: ssh cannot connect to mill, see its message above: `ssh mill` has to work first\n",
    )
    done = site("setup", "--host", "mill")
    assert done.err.endswith(
        "Error: --host: setup is called without the option before it: orchestrator setup --host "
        "mill\n"
    )


ARRAY = """\
[job]
name = "grid"
time_limit = "10"
[launch]
launcher = "python"
command = "true"
[array]
size = 3
"""
GONE = "ssh: Could not resolve hostname gone: Name or service not known"


def submit_array(cli: command_line.CommandLine) -> None:
    (cli.home / "array.toml").write_text(ARRAY)
    assert cli("submit", cli.home / "array.toml").code == 0


def two_hosts(site: Site) -> None:
    """`mill` works, `gone` does not."""
    ssh = Path(site.laptop.environ["PATH"].partition(":")[0], "ssh")
    ssh.rename(ssh.with_name("real-ssh"))
    line = f'case " $* " in *" gone "*) echo "{GONE}" >&2; exit 255;; esac; exec real-ssh "$@"'
    write_program(ssh, line)
    path = site.laptop.home / ".config" / "orchestrator" / "config.toml"
    path.write_text("[hosts.mill]\n[hosts.gone]\n")


def test_jobs_of_all_hosts(site: Site) -> None:
    submit_array(site.host)
    two_hosts(site)
    done = site.laptop("status", "--all-hosts", "--format", "table")
    heading, row = (line.split() for line in done.out.splitlines())
    assert heading[:4] == ["HOST", "JOB_ID", "NAME", "STATE"]
    assert row[:4] == ["mill", "1_[0-2]", "grid", "PENDING"]
    assert (done.code, done.err) == (255, f"gone: not shown: {GONE}\n")
    # ssh must not ask: several prompts at a time would mix.
    assert "BatchMode=yes" in site.calls[-1]
    items = site.laptop("status", "--json", "--all-hosts").items
    assert {item["host"] for item in items} == {"mill"}
    here = site.host("status", "--json").items
    assert [{**item, "host": "mill"} for item in here] == items


def test_options_hold_on_all_hosts(site: Site) -> None:
    submit_array(site.host)
    site.configure()
    done = site.laptop("status", "--all-hosts", "-n", "2", "--format", "jsonl")
    assert len([json.loads(line)["job_id"] for line in done.out.splitlines()]) == 2
    assert (done.code, done.err) == (
        0,
        "Only the newest 2 of mill are shown; --limit changes the number.\n",
    )
    assert site.laptop("status", "--all-hosts", "-t", "RUNNING", "--json").items == []
    site.set_host(instead=("", 127))
    done = site.laptop("status", "--all-hosts", "--json")
    assert (done.code, done.items) == (255, [])
    assert done.err.startswith("mill: not shown: orchestrator is not installed on mill, or ")
    for words, error in (
        (["1"], "--all-hosts: not with jobs or sweeps, which are of one host"),
        (["--watch"], "--all-hosts: not with --watch"),
    ):
        done = site.laptop("status", "--all-hosts", *words)
        assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: {error}")
    (site.laptop.home / ".config" / "orchestrator" / "config.toml").write_text("")
    done = site.laptop("status", "--all-hosts")
    assert done.err.endswith("Error: --all-hosts: no [hosts.NAME] is in the configuration\n")


def as_it_is(row: Any) -> Any:
    return row


def test_a_host_that_does_not_answer_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SECONDS", 0.2)
    site.set_host(noise="exec cat >/dev/null; ")
    gathered = gathering.Gathering(
        [connection.Remote(name="mill", host=config.Host())], site.laptop.environ
    )
    with contextlib.closing(gathered):
        assert gathered.answers(["status", "--json"], as_it_is) == [
            gathering.Answer(name="mill", error="did not answer within 0 s")
        ]


def test_ctrl_c_does_not_wait_for_a_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set_host(noise="exec cat >/dev/null; ")
    remotes = [connection.Remote(name=name, host=config.Host()) for name in ("mill", "forge")]
    waiting = gathering._Asked.answer

    def answer(self: gathering._Asked, *asked: Any) -> gathering.Answer:
        if self._remote.name == "forge":
            return waiting(self, *asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(gathering._Asked, "answer", answer)
    with contextlib.closing(gathering.Gathering(remotes, site.laptop.environ)) as gathered:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            gathered.answers(["status", "--json"], as_it_is)
        assert time.monotonic() - began < gathering.SECONDS / 2

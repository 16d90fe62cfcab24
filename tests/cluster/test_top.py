"""`orchestrator top` on a real Slurm, in a terminal that is connected through a real sshd."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from tests import terminals
from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster import ssh
from tests.cluster.faults import training

#: Where the user's terminal is.
HOST = "n1"
SOCKET = "/tmp/tmux-of-top"
TOP = [f"{sites.ENVIRONMENT}/bin/orchestrator", "top"]
#: Of a metric with several values.
CURVE = r"loss +[\d.]+  [▁▂▃▄▅▆▇█]{2}"
COLOURS = {*range(30, 39), *range(40, 49), *range(90, 108)}


def processes(lab: cluster.Lab) -> list[str]:
    """Return alice's processes of sshd and of `top` on the login host."""
    lines = lab.run(["ps", "-ww", "-u", "alice", "-o", "args="]).stdout.splitlines()
    return [line for line in lines if "sshd" in line or "orchestrator top" in line]


def files(site: sites.Site) -> list[str]:
    """Return alice's files on the login host, apart from those of jobs, after a command."""
    # It removes what SQLite leaves of a process that was killed.
    assert site.run("status", "--refresh").stderr == ""
    folders = [f"{site.home}/state", "/tmp", "/var/tmp", "/dev/shm", "/run"]
    found = site.lab.run(["find", *folders, "-user", "alice"])
    return sorted(found.stdout.splitlines())


def test_training_is_watched_and_cancelled_through_sshd(site: sites.Site, lab: cluster.Lab) -> None:
    key = f"{site.home}/key"
    tables = {
        "resources": 'mem = "2G"',
        "metrics": 'patterns = ["olivia"]',
        "sbatch": "hold = true",
    }
    job_id = site.submit(site.shell("train", training.TRAIN.format(last=1), **tables))

    def run(argv: Sequence[str]) -> str:
        done = lab.run(argv, host=HOST)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def top(**env: str) -> list[str]:
        return ssh.command(key, TOP, env={**site.environ, **env}, cwd=site.home)

    def start(argv: Sequence[str]) -> subprocess.Popen[str]:
        return lab.popen(argv, host=HOST)

    with ssh.serving(lab, key), terminals.opened(run, start, SOCKET, (80, 24)) as terminal:
        terminal.run(top())
        terminal.shows(f"{job_id} train PENDING  [log] metrics explain")
        lab.run(["scontrol", "release", job_id]).check_returncode()
        terminal.shows(f"{job_id} train RUNNING  [log] metrics explain")
        terminal.matches(r"Epoch \d+/1000000 completed in ")
        terminal.type("m")
        terminal.matches(CURVE)
        # The size reaches it through sshd.
        terminal.resize((200, 50))
        terminal.shows(f"{job_id} train RUNNING  [log] [metrics] [explain]")
        screen = terminal.matches(CURVE)
        assert "Validation Loss: " in screen
        terminal.type("c")
        terminal.shows("Cancel 1 job?")
        assert lab.job_state(job_id) == "RUNNING"
        terminal.type("y")
        terminal.shows(f"{job_id} is CANCELLED\n")
        assert lab.job_state(job_id) == "CANCELLED"
        terminal.type("q")
        terminal.shows("exit code 0\n")

        terminal.run(top(TERM="dumb"))
        screen = terminal.shows("exit code 2\n")
        assert "Error: this terminal cannot move the cursor (TERM is dumb or not set); " in screen

        before = files(site)
        terminal.run(top(NO_COLOR="1"))
        terminal.shows(f"{job_id} train CANCELLED  [log] [metrics] [explain]")
        parameters = re.findall(r"\x1b\[([\d;]*)m", terminal.screen("-e"))
        numbers = {int(number) for number in ";".join(parameters).split(";") if number}
        # The selected line is inverted.
        assert 7 in numbers
        assert not numbers & COLOURS
        assert [line for line in processes(lab) if "orchestrator top" in line]
        # The ssh client gets SIGHUP, and `top` too when sshd closes its terminal.
        terminal.tmux("kill-server")
        lab.wait_for(lambda: not processes(lab), 60, "top and sshd's session to end")
        assert files(site) == before

"""With a wrong clock no decisions are made: schedules wait until the clock is confirmed."""

from __future__ import annotations

import datetime
import re
import socket
import sys
from pathlib import Path

from tests.flow import command_line

DAY = 86400
SHIFTED = Path(__file__).with_name("shifted.py")
JOB = '[job]\nname = "x"\ntime_limit = "5"\n[launch]\nlauncher = "python"\ncommand = "true"\n'
LEAPT = re.compile(
    r"The clock of \S+ jumped (forward|back) by ([\d:-]+): it showed \S+ \S+ when \S+ \S+ was "
    r"expected\. (.*) Until the clock is trusted, schedules, recovery, deferred submissions, "
    r"graphs, alerts and notices are paused\. If the clock is wrong, set it \(NTP\); if it is "
    r"right, run `orchestrator tick --trust-clock`\."
)


def shifted(cli, seconds: int, *argv: str) -> command_line.Done:
    """Run a command on this host, with its clock set wrong."""
    return cli.run([sys.executable, str(SHIFTED), *argv], SHIFT_SECONDS=str(seconds))


def add(cli) -> None:
    """Add a schedule of each minute, and let a controller see it with the right clock."""
    every = ("schedule", "add", "often", "--cron", "* * * * *", "--tz", "UTC")
    assert cli(*every, cli.spec(JOB)).code == 0
    assert cli("tick").code == 0


def history(cli) -> list[dict[str, object]]:
    return cli("schedule", "history", "often", "--json").items


def test_tick_with_a_wrong_clock_decides_nothing(cli, fake_slurm):
    add(cli)
    before = history(cli)
    wrong = shifted(cli, 30 * DAY, "tick")
    match = LEAPT.fullmatch(wrong.err.strip())
    assert wrong.code == 0 and match, wrong.err
    assert match.groups() == ("forward", "30-00:00:00", "Slurm's clock shows another time.")
    # Every command reports it until one runs with the right clock.
    message = wrong.err.strip()
    assert message in cli("status", "--no-refresh").err
    assert message in cli("schedule", "list").err
    assert message in cli("schedule", "show", "often").err
    assert message in cli("serve", "--status").err
    # Cron does not mail the second pass, and neither decided anything.
    assert shifted(cli, 30 * DAY, "tick", "--quiet").err == ""
    # With the right clock the next planned time comes as if nothing had been.
    right = cli("tick")
    assert "The clock is trusted again; deferred work resumes." in right.err
    ((until,),) = cli.rows("SELECT decided_until FROM schedules")
    assert str(until)[:10] <= f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    assert len(history(cli)) <= len(before) + 5
    assert "jumped" not in cli("status").err


def test_no_decisions_after_the_clock_went_back(cli, fake_slurm):
    add(cli)
    wrong = shifted(cli, -30 * DAY, "tick")
    match = LEAPT.fullmatch(wrong.err.strip())
    assert match and match.groups()[:2] == ("back", "30-00:00:00"), wrong.err
    refused = shifted(cli, -30 * DAY, "schedule", "add", "b", "--cron", "@daily", "job.toml")
    assert refused.code == 6 and refused.err.startswith("Error: The clock of "), refused.err


def test_a_person_confirms_a_leap(cli, fake_slurm):
    add(cli)
    ((until,),) = cli.rows("SELECT decided_until FROM schedules")
    ours = shifted(cli, 2 * DAY, "tick", "--trust-clock")
    assert ours.err.startswith("This host's clock is trusted: ")
    ((later,),) = cli.rows("SELECT decided_until FROM schedules")
    assert str(later) > str(until)
    # Two days of minutes: the last hundred have an entry each, all earlier ones share one.
    reasons = [str(reason) for (reason,) in cli.rows("SELECT reason FROM firings")]
    assert len(reasons) <= 104
    assert sum("; so are all planned times since " in reason for reason in reasons) == 1


def test_slurm_on_this_host_does_not_confirm_its_clock(cli, fake_slurm):
    fake_slurm.configure(**{"SlurmctldHost[0]": f"{socket.gethostname()}(127.0.0.1)"})
    add(cli)
    wrong = shifted(cli, 7200, "tick")
    match = LEAPT.fullmatch(wrong.err.strip())
    assert match and match.groups() == (
        "forward",
        "02:00:00",
        "Without another jump it is trusted after 60 minutes.",
    )

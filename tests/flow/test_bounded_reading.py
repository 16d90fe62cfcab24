"""Commands end in time with any content of logs, patterns and database."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

BANNER = "=== orchestrator demo job 1 task 0 attempt 0 on n1 at 2026-11-22T08:00:00Z ===\n"
TERABYTE = 2**40
UNREAD = re.compile(
    r"^read [0-9.]+ of [0-9.]+ MiB of 1's log in 5 s; the next refresh continues$", re.MULTILINE
)


def running(cli: command_line.CommandLine, fake_slurm: FakeSlurm, spec: str = "") -> Path:
    """Return the log, with its banner, of a job that runs."""
    path = cli.spec(f'[job]\nname = "demo"\n[launch]\ncommand = "true"\n{spec}')
    done = cli("submit", path)
    assert done.code == 0, done.err
    fake_slurm.set_state(1, "RUNNING")
    assert cli("refresh").code == 0
    log = Path(cli("logs", "1", "--path").out.strip())
    log.write_text(BANNER)
    return log


def own_pattern(regex: str) -> str:
    return (
        "[[metrics.pattern.own.line]]\nname = 'speed'\n"
        f"regex = '{regex}'\nmetrics = {{ throughput = 'it/s' }}\n"
    )


def test_a_sparse_terabyte_is_passed_over_and_wait_ends_in_time(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    log = running(cli, fake_slurm)
    with log.open("r+b") as file:
        file.truncate(TERABYTE)
        file.seek(TERABYTE)
        file.write(b"\nEpoch Throughput: 5.500 images/second\n")
    begun = time.monotonic()
    done = cli("wait", "1", "--timeout", "3")
    assert done.code == 124
    assert done.err.splitlines()[-1] == "Error: 1 of 1 jobs have not ended after 3 s"
    assert time.monotonic() - begun < 20
    assert cli.rows("select name, value, line from metrics") == [("throughput", 5.5, 3)]
    assert cli("logs", "1", "-n", "1").out == "Epoch Throughput: 5.500 images/second\n"
    fake_slurm.set_state(1, "FAILED", exit="1:0")
    explained = cli("explain", "1", "--refresh")
    assert explained.code == 0 and "nonzero_exit" in explained.out


def test_a_slow_log_is_read_on_by_each_refresh(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    log = running(cli, fake_slurm)
    with log.open("a") as file:
        file.write("loss 1.0 is what this long line of prose names, no metric\n" * 150_000)
        file.write("Epoch Throughput: 5.500 images/second\n")
    counts = []
    for _ in range(40):
        begun = time.monotonic()
        done = cli("refresh")
        assert done.code == 0 and time.monotonic() - begun < 30
        counts.append(int(done.err.splitlines()[-1].split(", ")[1].split()[0]))
        if not UNREAD.search(done.err):
            break
    # Each call reads a part, and the value is at the end.
    assert len(counts) > 1 and counts == [0] * (len(counts) - 1) + [1]
    assert cli.rows("select name, value from metrics") == [("throughput", 5.5)]


def test_an_expression_that_could_take_for_ever_is_matched_in_linear_time(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    regex = "(?P<throughput>[0-9])(?:a|aa)+$"
    log = running(cli, fake_slurm, own_pattern(regex))
    with log.open("a") as file:
        file.write("1" + "a" * 60 + "!\n" + "7aaa\n")
    assert cli("status").code == 0
    done = cli("refresh")
    assert done.code == 0, done.err
    assert cli.rows("select value, source from metrics") == [(7.0, "log:own")]


def test_a_slow_expression_is_switched_off_and_named(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    regex = "(?P<throughput>[0-9])(?:a|aa)+(?!b)$"
    log = running(cli, fake_slurm, own_pattern(regex))
    with log.open("a") as file:
        file.write("7aaa\n" + "1" + "a" * 60 + "!\n" + "Epoch Throughput: 5.500 images/second\n")
    done = cli("refresh")
    assert done.code == 0
    assert (
        '1: pattern own, line "speed" (spec): its regex took more than 0.05 s on a line of 62 '
        "characters and is not used for the rest of this read. Simplify it: fewer alternatives "
        "and repeats within repeats, no lookaround and no back-references" in done.err.splitlines()
    )
    assert cli.rows("select value, source from metrics order by id") == [
        (7.0, "log:own"),
        (5.5, "log:olivia"),
    ]


def test_wait_ends_in_time_when_slurm_hangs_and_slurm_is_not_blamed(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    running(cli, fake_slurm)
    fake_slurm.fail("squeue", rc=0, delay_seconds=40.0)
    time.sleep(1.1)  # the floor between two questions to Slurm
    begun = time.monotonic()
    done = cli("wait", "1", "--timeout", "2")
    assert (done.code, done.err) == (124, "Error: 1 of 1 jobs have not ended after 2 s\n")
    assert time.monotonic() - begun < 20
    fake_slurm.heal()
    assert "not answer" not in cli("status", "--no-refresh").err


def test_wait_ends_in_time_when_slurm_hangs_and_the_facts_are_old(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    running(cli, fake_slurm)
    with sqlite3.connect(cli.database) as database:
        changed = database.execute(
            "UPDATE settings SET value = json_set(value, '$.asked_at', '2026-11-01T00:00:00+00:00')"
            " WHERE key LIKE 'cluster:%'"
        )
        assert changed.rowcount == 1
    database.close()
    fake_slurm.fail("scontrol", rc=0, delay_seconds=40.0)
    done = cli("wait", "1", "--timeout", "1")
    assert (done.code, done.err) == (124, "Error: 1 of 1 jobs have not ended after 1 s\n")


def test_wait_ends_in_time_when_the_database_is_busy(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    running(cli, fake_slurm)
    with sqlite3.connect(cli.database, isolation_level=None) as busy:
        busy.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        done = cli("wait", "1", "--timeout", "1")
        seconds = time.monotonic() - begun
        busy.execute("ROLLBACK")
    busy.close()
    assert done.code == 124 and seconds < 20
    assert done.err == (
        "Error: the jobs have not ended after 1 s; the database or a disk did not respond in time\n"
    )

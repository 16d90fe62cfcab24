"""Commands on a damaged database: a clear error that explains how to recover."""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from db import tables
from tests.flow import damage
from tests.flow.command_line import CommandLine, Done

#: Codes of docs/reference.md that a command may end with here.
CODES = (0, 1, 2, 3, 4, 5, 6, 124)
MAX_SECONDS = 10.0
RESTORE = "`orchestrator db restore BACKUP` replaces it with a backup (there is none beside it)."
NOBODY = f"`orchestrator db check` lists what is damaged; {RESTORE}"
SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\ncommand = "true"\n'


def complaint(done: Done, seconds: float) -> str:
    """Return what is wrong with how a command ended; "": nothing."""
    text = done.out + done.err
    if "Traceback" in text or re.search(r"\bbug\b", text):
        return f"an error of the program: {text[-2000:]}"
    if done.code not in CODES:
        return f"exit code {done.code}: {text[-500:]}"
    if seconds > MAX_SECONDS:
        return f"took {seconds:.0f} s"
    if "damaged" in done.err and "`orchestrator db restore" not in done.err:
        return f"names no way back: {done.err[-1000:]}"
    return ""


@pytest.fixture
def filled(cli: CommandLine, fake_slurm) -> CommandLine:
    cli.needs_file()
    damage.populate(cli, fake_slurm)
    return cli


def run(cli: CommandLine, words: tuple[str, ...]) -> tuple[Done, float]:
    target = cli.home / "copy.db"
    target.unlink(missing_ok=True)
    began = time.monotonic()
    done = cli(*(str(target) if word == "BACKUP" else word for word in words))
    return done, time.monotonic() - began


@pytest.mark.parametrize(
    "databases",
    [24, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])],
)
def test_flipped_bytes(filled: CommandLine, databases: int) -> None:
    dice = random.Random(15)
    kinds = (damage.in_one_file(filled.database), damage.with_wal(filled.database))
    wrong = []
    for number in range(databases):
        files = damage.flips(dice.choice(kinds), dice)
        for words in dice.sample(damage.COMMANDS, 2):
            files.put(filled.database)
            if problem := complaint(*run(filled, words)):
                wrong.append((number, words, problem))
    assert wrong == []


@pytest.mark.parametrize(
    "columns",
    [20, pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])],
)
def test_wrong_values(filled: CommandLine, columns: int | None) -> None:
    """Values of a wrong type are reported in every column, including new ones."""
    dice = random.Random(15)
    whole = damage.in_one_file(filled.database)
    wrong = []
    values = list(damage.wrong_values(filled.database))
    for name, store in values if columns is None else dice.sample(values, columns):
        whole.put(filled.database)
        store()
        stored = damage.in_one_file(filled.database)
        words = dice.choice(damage.COMMANDS)
        stored.put(filled.database)
        if problem := complaint(*run(filled, words)):
            wrong.append((name, words, problem))
    assert wrong == []


def test_bytes_in_any_column_are_reported(filled: CommandLine) -> None:
    whole = damage.in_one_file(filled.database)
    missed = []
    for table in tables.METADATA.sorted_tables:
        whole.put(filled.database)
        stored = []
        for column in table.c:
            with sqlite3.connect(filled.database) as connection:
                # Where a row's number is the row's address, SQLite holds nothing else.
                try:
                    connection.execute(
                        f"UPDATE {table.name} SET {column.name} = x'fffe' WHERE rowid = "
                        f"(SELECT max(rowid) FROM {table.name})"
                    )
                    count = connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
                    stored += [column.name] if count else []
                except sqlite3.Error:
                    pass
            connection.close()
        items = filled("db", "check", "--json").items
        result = {item["column"] for item in items if item["table"] == table.name}
        missed += [f"{table.name}.{name}" for name in stored if name not in result]
    assert missed == []


@pytest.fixture
def damaged(cli: CommandLine) -> CommandLine:
    """Three jobs, the second with a state that there is not."""
    for _ in range(3):
        assert cli("submit", cli.spec(SPEC)).code == 0
    change(cli, "UPDATE jobs SET state = 'RUNNIN' || char(7) WHERE row = 2")
    return cli


def change(cli: CommandLine, *statements: str) -> None:
    with sqlite3.connect(cli.database) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_the_damaged_row_is_named(damaged: CommandLine) -> None:
    problem = r"jobs row @2: state is 'RUNNIN\x07', not a state of a job"
    way_back = f"The database {damaged.database} is damaged. {NOBODY}"
    shown = damaged("show", "@2", "--no-refresh")
    assert (shown.code, shown.out, shown.err) == (1, "", f"Error: {problem}. {way_back}\n")
    for words in (("cancel", "demo"), ("metrics", "@2"), ("wait", "@2")):
        done = damaged(*words)
        assert (done.code, done.out) == (1, "")
        assert done.err.endswith(f"Error: {problem}. {way_back}\n")
    status = damaged("status", "--no-refresh")
    assert status.code == 1
    assert [line.split("\t")[-1] for line in status.out.splitlines()] == ["row", "@3", "@1"]
    assert status.err == (
        f"Left out, because they cannot be read: @2\nError: {problem}. {way_back}\n"
    )
    check = damaged("db", "check")
    assert (check.code, check.out) == (1, f"problem\n{problem}\n")
    # It does not advise to run itself.
    assert check.err == f"Error: 1 problem found. {RESTORE}\n"
    assert damaged("db", "check", "--json").items == [
        {"table": "jobs", "row": "@2", "column": "state", "problem": problem}
    ]


@pytest.mark.parametrize(
    ("offset", "problem"),
    [(0, "file is not a database"), (100, "database disk image is malformed")],
)
def test_check_of_an_unreadable_file(cli: CommandLine, offset: int, problem: str) -> None:
    assert cli("submit", cli.spec(SPEC)).code == 0
    with cli.database.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 8)
    check = cli("db", "check")
    assert (check.code, check.out) == (1, "")
    assert check.err == f"Error: {cli.database} cannot be read: {problem}. {RESTORE}\n"


def test_nothing_is_stored_after_damage_was_found(damaged: CommandLine) -> None:
    before = damaged.rows("SELECT * FROM jobs"), damaged.rows("SELECT * FROM job_events")
    assert damaged("tick").code == 1
    assert damaged("refresh").code == 1
    after = damaged.rows("SELECT * FROM jobs"), damaged.rows("SELECT * FROM job_events")
    assert after == before


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE jobs SET settled = 1, state = 'COMPLETED'",
            "jobs row @1: ended_at is missing, and the job is COMPLETED",
        ),
        (
            "UPDATE jobs SET state = 'RUNNING', ended_at = '2026-01-02 00:00:00.000000'",
            "jobs row @1: ended_at is 2026-01-02 00:00:00+00:00, and the state is RUNNING",
        ),
        (
            "UPDATE jobs SET created_at = '0026-01-02 00:00:00.000000'",
            "jobs row @1: created_at is '0026-01-02 00:00:00.000000', not a time from 1970 to 2999",
        ),
        (
            "UPDATE jobs SET time_limit_seconds = -1",
            "jobs row @1: time_limit_seconds is -1, not a whole number from 0 to 257698037760",
        ),
        (
            "UPDATE jobs SET labels = '[1]'",
            "jobs row @1: labels is '[1]', not a JSON list of texts",
        ),
        (
            "UPDATE jobs SET continues = 9",
            "jobs row @1: continues is 9, and jobs has no such row",
        ),
        (
            "UPDATE jobs SET continues = 1",
            "jobs row @1: continues names a job that is not older",
        ),
        (
            "UPDATE jobs SET tracked_name = 'x'",
            "jobs row @1: tracked_name is set, and the provenance of its submission lacks `slurm`",
        ),
        (
            "UPDATE submissions SET provenance = substr(provenance, 2)",
            "submissions row @1: provenance is ",
        ),
        (
            "UPDATE settings SET value = 'x' WHERE key = 'installation_id'",
            "settings row 'installation_id': value is 'x', not four letters or digits",
        ),
        (
            "INSERT INTO attempts (job_row, number, state) VALUES (1, 7, 'RUNNING')",
            "attempts row 1, 7: number is larger than the attempt of its job",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON submissions BEGIN "
            "UPDATE submissions SET script = 'planted'; END",
            "the trigger 't' of submissions was not created by orchestrator, and changes what is ",
        ),
    ],
)
def test_an_impossible_state_is_reported(cli: CommandLine, statement: str, problem: str) -> None:
    assert cli("submit", cli.spec(SPEC)).code == 0
    change(cli, statement)
    done = cli("db", "check")
    assert done.code == 1
    assert any(line.startswith(problem) for line in done.out.splitlines()), done.out


def test_rows_that_contradict_each_other_are_named(cli: CommandLine) -> None:
    """Each value can be read; the error occurs in code that does not check for it."""
    (cli.folder / "train.py").touch()
    sweep = SPEC.replace("[launch]\n", "").replace('command = "true"\n', "") + (
        '[launch]\nlauncher = "python"\nscript = "train.py"\n'
        '[sweep]\nkind = "grid"\naxes.args.lr = [1, 2]\n'
    )
    assert cli("sweep", "submit", cli.spec(sweep)).code == 0
    change(cli, "UPDATE sweep_points SET shape_id = 77 WHERE number = 2")
    problem = "sweep_points row 1, 2: shape_id is 77, and sweep_shapes has no such row"
    report = cli("sweep", "report", "demo")
    assert (report.code, report.out) == (1, "")
    assert report.err == f"Error: {problem}. The database {cli.database} is damaged. {NOBODY}\n"
    assert cli("db", "check").out == f"problem\n{problem}\n"


def test_a_circular_chain_of_jobs_ends(cli: CommandLine) -> None:
    for _ in range(2):
        assert cli("submit", cli.spec(SPEC)).code == 0
    change(
        cli,
        "UPDATE jobs SET continues = 2, state = 'FAILED', settled = 1 WHERE row = 1",
        "UPDATE jobs SET continues = 1, state = 'FAILED', settled = 1 WHERE row = 2",
    )
    for words in (("wait", "@1"), ("show", "@1"), ("explain", "@1"), ("resubmit", "@1")):
        done, seconds = run(cli, words)
        assert complaint(done, seconds) == ""


def test_an_upgrade_of_a_damaged_database_changes_nothing(cli: CommandLine) -> None:
    assert cli("submit", cli.spec(SPEC)).code == 0
    whole = damage.in_one_file(cli.database)
    whole.put(cli.database)
    change(cli, "UPDATE alembic_version SET version_num = '0007'")
    content = bytearray(damage.in_one_file(cli.database).contents[""])
    # A page of an index: each requested row is found without it.
    with sqlite3.connect(cli.database) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'ix_jobs_created_at'"
        ).fetchone()
    connection.close()
    content[(page - 1) * 4096 + 8 : page * 4096] = b"\xff" * 4088
    files = damage.Files({"": bytes(content)})
    files.put(cli.database)
    done = cli("db", "upgrade")
    assert (done.code, done.out) == (1, "")
    assert "Nothing was upgraded." in done.err
    assert "`orchestrator db restore BACKUP`" in done.err
    assert cli.database.read_bytes() == bytes(content)
    assert list(cli.state_dir.glob("*.backup")) == []


@pytest.fixture
def backup(damaged: CommandLine) -> Iterator[Path]:
    """A backup of the three jobs from before the damage."""
    change(damaged, "UPDATE jobs SET state = 'PENDING' WHERE row = 2")
    done = damaged("db", "backup")
    assert done.code == 0
    (path,) = damaged.state_dir.glob("*.backup")
    assert done.err == f"Copied to {path}.\n"
    assert path.stat().st_mode & 0o777 == 0o600
    change(damaged, "UPDATE jobs SET state = 'RUNNIN' || char(7) WHERE row = 2")
    yield path


def test_restore(damaged: CommandLine, backup: Path) -> None:
    (listed,) = damaged("db", "restore", "--json").items
    assert (listed["path"], listed["size_bytes"]) == (str(backup), backup.stat().st_size)
    assert f"(newest: {backup})" in damaged("show", "@2").err
    done = damaged("db", "restore", backup)
    (kept,) = damaged.state_dir.glob("*.replaced")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        f"Replaced {damaged.database} with {backup}.\nThe replaced database: {kept}\n"
    )
    assert damaged("db", "check").err == "The database is intact.\n"
    assert [row for row, _ in damaged.rows()] == [1, 2, 3]
    assert damaged("submit", damaged.spec(SPEC)).code == 0
    with sqlite3.connect(kept) as connection:
        old = connection.execute("SELECT state FROM jobs WHERE row = 2").fetchone()
    connection.close()
    assert old == ("RUNNIN\x07",)
    assert damaged.database.stat().st_mode & 0o777 == 0o600
    assert backup.exists()


def test_a_backup_that_cannot_be_restored(damaged: CommandLine, backup: Path) -> None:
    bad = damaged.home / "bad.db"
    end = "Nothing was changed. Name another backup.\n"
    before = damaged.database.read_bytes()
    bad.write_bytes(backup.read_bytes())
    with sqlite3.connect(bad) as connection:
        connection.execute("UPDATE submissions SET scheduler = 'x' WHERE id = 3")
    connection.close()
    message = "submissions row @3: scheduler is 'x', not one of slurm, local"
    cases = [(f"{bad} cannot be restored: {message}. {end}", 1)]
    assert [ended(damaged, bad)] == cases
    bad.write_bytes(backup.read_bytes())
    with sqlite3.connect(bad) as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON submissions BEGIN "
            "UPDATE submissions SET script = 'planted'; END"
        )
    connection.close()
    message = (
        "the trigger 't' of submissions was not created by orchestrator, and changes what is "
        "stored or read"
    )
    assert ended(damaged, bad) == (f"{bad} cannot be restored: {message}. {end}", 1)
    bad.write_bytes(b"text" * 5000)
    assert ended(damaged, bad) == (
        f"{bad} cannot be restored: file is not a database. {end}",
        1,
    )
    bad.write_bytes(b"")
    assert ended(damaged, bad) == (f"{bad} cannot be restored: it has no tables. {end}", 1)
    assert ended(damaged, damaged.home / "no") == (
        f"no file {damaged.home}/no; `orchestrator db restore` lists backups\n",
        4,
    )
    assert damaged.database.read_bytes() == before
    assert sorted(path.name for path in damaged.state_dir.glob("*restore*")) == []


def ended(cli: CommandLine, backup: Path) -> tuple[str, int]:
    done = cli("db", "restore", backup)
    assert done.out == ""
    return done.err.removeprefix("Error: "), done.code


def test_restore_beside_a_controller(damaged: CommandLine, backup: Path) -> None:
    change(damaged, "UPDATE jobs SET state = 'PENDING' WHERE row = 2")
    serving = damaged.start("serve")
    try:
        damaged.wait_until(
            lambda: damaged.rows("SELECT host FROM leases WHERE host IS NOT NULL"), "the lease"
        )
        reported, code = ended(damaged, backup)
        assert code == 6
        assert re.fullmatch(
            r"`serve` \(process \d+ on \S+, since [-0-9]+ [:0-9]+\) uses this database\. "
            r"Stop it first, then restore\.\n",
            reported,
        )
    finally:
        serving.terminate()
        serving.communicate()


def test_restore_while_another_process_has_it_open(damaged: CommandLine, backup: Path) -> None:
    connection = sqlite3.connect(damaged.database)
    connection.execute("SELECT 1 FROM jobs").fetchall()
    try:
        reported, code = ended(damaged, backup)
    finally:
        connection.close()
    assert code == 6
    assert re.search(
        rf"{damaged.database} is open in process \d+ \([^)]*\)\. Wait until it has ended, or stop "
        r"it; then try again\.\n",
        reported,
    )
    assert ended(damaged, backup)[1] == 0

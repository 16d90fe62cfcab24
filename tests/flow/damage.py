"""Damaged databases: a database filled by the commands, and ways to damage its file."""

from __future__ import annotations

import dataclasses
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from db import tables
from tests.flow.command_line import CommandLine
from tests.flow.conftest import FakeSlurm

_TRAIN = """\
import json, os
for step in range(12):
    print(f"step {step} loss: {1 / (step + 1):.4f} lr: 0.1", flush=True)
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(6):
        record = {"name": "window_throughput", "value": 100.0 + step, "step": step, "rank": 0}
        print(json.dumps({**record, "world_size": 1}), file=file)
"""
_JOB = '[job]\nname = "{name}"\ntime_limit = "10"\n'
_LAUNCH = '[launch]\nlauncher = "python"\nscript = "train.py"\n'
_FAILS = '[launch]\ncommand = "echo CUDA out of memory >&2; exit 3"\n[retry]\nmax_retries = 2\n'
_SWEEP = '[sweep]\nkind = "grid"\naxes.args.lr = [0.1, 0.01]\naxes.args.seed = [1, 2]\n'
_GRAPH = """\
[graph]
name = "flow"
[graph.nodes.first]
spec = "first.toml"
[graph.nodes.second]
spec = "second.toml"
after_ok = ["first"]
"""
_CHANNEL = """\
[notices.hook]
kind = "webhook"
url = "http://127.0.0.1:1/x"
"""


def populate(cli: CommandLine, fake_slurm: FakeSlurm) -> None:
    """Fill the database with what each kind of command stores."""
    configuration = cli.home / ".config" / "orchestrator"
    configuration.mkdir(parents=True)
    (configuration / "config.toml").write_text(_CHANNEL)
    (cli.folder / "train.py").write_text(_TRAIN)

    def spec(name: str, rest: str = _LAUNCH) -> Path:
        return cli.spec(_JOB.format(name=name) + rest, f"{name}.toml")

    def run(*words: str | Path, code: int = 0) -> None:
        done = cli(*words)
        assert done.code == code, (words, done)

    run("tick")
    fake_slurm.run_jobs()
    demo = spec("demo", f'labels = ["team=vision"]\n{_LAUNCH}')
    run("submit", demo, "--wait")
    run("submit", spec("failing", _FAILS), "--wait", code=1)
    run("tick")
    run("sweep", "submit", spec("grid", _LAUNCH + _SWEEP))
    run("wait", "--sweep", "grid")
    run("schedule", "add", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", demo)
    run("schedule", "run", "nightly")
    run("wait", "--name", "demo")
    run("metrics", "demo")
    run("baseline", "set", "monday", "--sweep", "grid")
    fake_slurm.run_jobs(False)
    for name in ("first", "second", "waiting", "running"):
        spec(name)
    run("graph", "submit", cli.spec(_GRAPH, "graph.toml"))
    run("submit", cli.folder / "waiting.toml", "--dependency", "afterany:demo")
    run("submit", cli.folder / "running.toml")
    fake_slurm.set_state(fake_slurm.jobs()[-1]["job_id"], "RUNNING")
    run("refresh")
    run("tick")


#: Commands for each damaged database: all read it, a few write.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--all", "--no-refresh", "--json"),
    ("show", "@1"),
    ("show", "failing", "--json"),
    ("show", "@1", "--environment", "--no-refresh"),
    ("metrics", "demo"),
    ("metrics", "--sweep", "grid", "--csv"),
    ("logs", "@1"),
    ("wait", "running", "--timeout", "0.2"),
    ("sweep", "status", "grid"),
    ("sweep", "list"),
    ("sweep", "report", "grid"),
    ("schedule", "list"),
    ("schedule", "history", "nightly"),
    ("graph", "status", "flow"),
    ("graph", "list"),
    ("baseline", "show"),
    ("baseline", "show", "monday"),
    ("notices", "list"),
    ("explain", "@2"),
    ("usage",),
    ("db", "check"),
    ("db", "backup", "BACKUP"),
    ("cancel", "nobody"),
    ("resubmit", "@2"),
    ("refresh",),
    ("tick",),
)


@dataclasses.dataclass(frozen=True)
class Files:
    """The database and the files beside it, restored before each damage."""

    #: by the end of the name: "", "-wal"
    contents: dict[str, bytes]

    @classmethod
    def of(cls, database: Path) -> Files:
        """Return the files as they are, once with and once without what is still in the WAL."""
        contents = {}
        for end in ("", "-wal", "-shm"):
            path = database.with_name(database.name + end)
            if path.exists():
                contents[end] = path.read_bytes()
        return cls(contents)

    def put(self, database: Path) -> None:
        """Write them in place of what is there."""
        for path in database.parent.glob(f"{database.name}*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for end, content in self.contents.items():
            path = database.with_name(database.name + end)
            path.write_bytes(content)
            path.chmod(0o600)


def in_one_file(database: Path) -> Files:
    """Return the database with its WAL moved into it."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return Files({"": database.read_bytes()})


def with_wal(database: Path) -> Files:
    """Return the database with much of it in a WAL, as a killed writer leaves it."""
    copy = database.with_name("wal.db")
    shutil.copyfile(database, copy)
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    for table in ("jobs", "submissions", "job_events", "schedules", "sweep_points"):
        (column,) = connection.execute(
            "SELECT name FROM pragma_table_info(?) WHERE type LIKE 'TEXT%' LIMIT 1", (table,)
        ).fetchone()
        connection.execute(f"UPDATE {table} SET {column} = {column} || ''")
    files = Files.of(copy)
    connection.close()
    for path in copy.parent.glob("wal.db*"):
        path.unlink()
    return Files({end: content for end, content in files.contents.items() if end != "-shm"})


def flips(files: Files, dice: random.Random) -> Files:
    """Return the files with some of their bytes changed in one of several ways."""
    contents = {end: bytearray(content) for end, content in files.contents.items()}
    end = dice.choice(sorted(contents))
    data = contents[end]

    def at() -> int:
        return dice.randrange(len(data))

    page = 4096
    match dice.choice(
        ("bits", "bytes", "text", "range", "zeroed", "cut", "header", "swap", "structure")
    ):
        case "bits":
            for _ in range(dice.choice((1, 8, 64))):
                data[at()] ^= 1 << dice.randrange(8)
        case "bytes":
            for _ in range(dice.choice((1, 8, 64))):
                data[at()] = dice.randrange(256)
        case "text":
            # Positions of text: damage that SQLite itself cannot detect.
            for _ in range(200):
                position = at()
                if 32 <= data[position] < 127:
                    data[position] = dice.choice((data[position] ^ 1, 255, 0, 48))
                    if dice.random() < 0.1:
                        break
        case "range":
            position = at()
            stop = min(len(data), position + dice.choice((16, 256, 2048)))
            data[position:stop] = dice.randbytes(stop - position)
        case "zeroed":
            position = at() // page * page
            data[position : position + page] = bytes(len(data[position : position + page]))
        case "cut":
            del data[at() :]
        case "header":
            data[dice.randrange(min(100, len(data)))] = dice.randrange(256)
        case "swap":
            one, other = at() // page * page, at() // page * page
            first, second = bytes(data[one : one + page]), bytes(data[other : other + page])
            if len(first) == len(second):
                data[one : one + page], data[other : other + page] = second, first
        case "structure":
            # The head of a page and its cell pointers.
            for _ in range(dice.choice((1, 4))):
                position = at() // page * page + dice.randrange(64)
                if position < len(data):
                    data[position] = dice.choice(
                        (0, 1, 255, data[position] ^ 1, dice.randrange(256))
                    )
    return Files({end: bytes(content) for end, content in contents.items()})


#: Values that SQLite accepts in any column, regardless of its type.
_VALUES: tuple[object, ...] = (
    None,
    -1,
    2**62,
    7,
    1e300,
    "",
    "RUNNIN\x07",
    "no\0thing",
    '{"a": ',
    "[[[1]]]",
    "9999-12-31 23:59:59.999999",
    "0001-01-01 00:00:00.000000",
    b"\xff\xfe",
    b"",
)


def wrong_values(database: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield for each column of each table what stores each value that it should not hold."""

    def stores(table: str, column: str, value: object, as_text: bool, every: bool) -> None:
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("PRAGMA ignore_check_constraints=ON")
        where = "" if every else f" WHERE rowid = (SELECT max(rowid) FROM {table})"
        marks = "CAST(? AS TEXT)" if as_text else "?"
        # A file that was damaged obeys no constraint.
        sql = "UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE name = ?"
        connection.execute(sql, (table,))
        connection.commit()
        connection.close()
        connection = sqlite3.connect(database)
        try:
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {marks}{where}", (value,))
            connection.commit()
        except sqlite3.Error:
            # A row number can be nothing else.
            connection.rollback()
        finally:
            connection.execute("PRAGMA writable_schema=ON")
        connection.close()

    for table in tables.METADATA.sorted_tables:
        for column in table.c:
            for value in _VALUES:
                for as_text in (False, True) if isinstance(value, bytes) else (False,):
                    name = f"{table.name}.{column.name} = {value!r}{' as text' * as_text}"
                    yield (
                        name,
                        lambda t=table.name, c=column.name, v=value, a=as_text: stores(
                            t, c, v, a, True
                        ),
                    )

"""Several processes on one database: no write is lost, duplicated or partial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.sqlite import filesystem
from orchestrator import errors, metrics
from orchestrator.controller.session import stores

ROOT = Path(filesystem.__file__).parents[2]
WRITERS = 4
CHANGES = 150

#: What every worker begins with; the database is the first argument.
HEAD = """
import datetime, itertools, pathlib, sys
from db.sqlite import filesystem
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
from orchestrator import jobs, metrics
from orchestrator.controller.session import stores
url = sys.argv[1]
now = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
"""
#: Increments a counter a given number of times; every tenth time with a new connection, like a
#: new command.
COUNT = """
if sys.argv[2] == "server":
    database = stores.Store(url)._database
else:
    locality = filesystem.Locality(sys.argv[2])
    path = pathlib.Path(url.removeprefix("sqlite:///"))
    database = SqliteDatabase(path, find_locality=lambda path: locality)
for turn in range(int(sys.argv[3])):
    with database.writing(durable=turn % 50 == 0) as db:
        counter = int(SettingStore(db).get("counter") or 0)
        SettingStore(db).put("counter", str(counter + 1))
    with database.reading() as db:
        assert int(SettingStore(db).get("counter")) > turn
    if turn % 10 == 0:
        database.close()
database.close()
"""
HOLD = """
with stores.Store(url)._database.writing() as db:
    SettingStore(db).put("half", "x" * 5_000_000)
    print("inside", flush=True)
    sys.stdin.read()
"""
#: Twenty processes that are let go at once.
CLAIM = """
import os, traceback
gate, opener = os.pipe()
for number in range(20):
    if os.fork() == 0:
        try:
            with stores.Store(url) as store:
                os.read(gate, 1)
                with store.writing() as work:
                    print(work.refreshes.claim("lab", now, 10, str(number)), flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
os.write(opener, b"x" * 20)
for number in range(20):
    os.wait()
"""
#: Reads "lines" from the cursor and stores their values, until all are read.
READ_LOG = """
with stores.Store(url) as store:
    for pause in itertools.count():
        with store.reading() as work:
            cursor = next(iter(work.log_cursors.of(1)), None)
        line = cursor.line if cursor else 0
        if line == 100:
            break
        moved = metrics.LogCursor(path="/r/1.out", offset_bytes=line * 10 + 10, line=line + 1)
        # The same line number under ever new values: only the cursor can keep them apart.
        metric = jobs.Metric(name="loss", value=float(pause), source="log:x", path="/r/1.out",
                             line=line)
        with store.writing() as work:
            if work.log_cursors.move(1, moved, expect=cursor):
                assert work.metrics.add(1, [metrics.ParsedLine.of(metric)]) == 1
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(workers: list[subprocess.Popen[str]]) -> list[str]:
    ended = [worker.communicate(timeout=300) for worker in workers]
    assert [err for _, err in ended if err] == []
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return [out for out, _ in ended]


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    with stores.Store(database_url) as store:
        yield store


@pytest.mark.parametrize("locality", [*(item.value for item in filesystem.Locality), "server"])
def test_no_change_is_lost(tmp_path: Path, request: pytest.FixtureRequest, locality: str) -> None:
    """The tables are not there at first: the writers also race to make them."""
    url = f"sqlite:///{tmp_path}/x.db"
    if locality == "server":
        url = request.getfixturevalue("postgresql_server").make()
    finish([start(COUNT, url, locality, CHANGES) for _ in range(WRITERS)])
    with stores.Store(url) as store:
        with store.reading() as work:
            assert work.settings.get("counter") == str(WRITERS * CHANGES)
        assert store.check() == []


def test_killed_writer_leaves_the_old_state(store: stores.Store, database_url: str) -> None:
    with store.writing() as work:
        work.settings.put("whole", "yes")
    writer = start(HOLD, database_url)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "inside\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    with store.writing() as work:
        assert (work.settings.get("whole"), work.settings.get("half")) == ("yes", None)
        work.settings.put("after", "yes")
    assert store.check() == []


def test_twenty_waiters_ask_slurm_once(store: stores.Store, database_url: str) -> None:
    with store.writing():
        pass
    (answers,) = finish([start(CLAIM, database_url)])
    assert sorted(answers.split()) == ["False"] * 19 + ["True"]


def test_two_readers_of_a_log_store_each_line_once(store: stores.Store, database_url: str) -> None:
    code = (
        "with stores.Store(url) as store, store.writing() as work:\n"
        "    work.jobs.add_submission(jobs.Submission(token='t', cluster='c', scheduler='slurm',\n"
        "        name='n', script='', spec='', run_dir='', provenance='', created_at=now))\n"
    )
    finish([start(code, database_url)])
    finish([start(READ_LOG, database_url) for _ in range(2)])
    with store.reading() as work:
        stored = work.metrics.by_job(metrics.MetricQuery(job_rows=[1]))[1]
    assert [metric.line for metric in stored] == list(range(100))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {answer.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_error_of_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "x.db"
    with stores.Store(path) as store:
        with store.writing() as work:
            work.settings.put("whole", "yes")
        with pytest.raises(errors.DatabaseError) as refusal, store.writing(durable=True) as work:
            work.settings.put("whole", "no")
            work.settings.put("large", "x" * 2_000_000)
        assert str(refusal.value) == (
            f"No space left on device: {path}. Nothing was stored. "
            "Free some space or move state_dir to another disk, then try again."
        )
        with store.reading() as work:
            assert (work.settings.get("whole"), work.settings.get("large")) == ("yes", None)
        assert store.check() == []


def test_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 1_000_000)
    with stores.Store(small_disk / "x.db") as store:
        with pytest.raises(errors.DatabaseError, match="No space left on device"):
            with store.writing():
                pass
        (small_disk / "ballast").unlink()
        with store.writing() as work:
            assert len(work.settings.installation_id()) == 4

"""A PostgreSQL server for a test run: without network, and always stopped with the run.

Each test has its own database, copied from one that already has the tables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import machine
from tests.debian_programs import POSTGRESQL, Programs, Unavailable, found, nobody

USER = "orchestrator"
_PREFIX = "orchestrator-pg-"
#: Nothing is to survive the machine. Connections are short here.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "80",
    "listen_addresses": "",
}

#: Ends other connections, removes the rows that no migration made, and lets IDs begin at 1 again.
EMPTY = """
DO $$ DECLARE name regclass; BEGIN
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    SET LOCAL session_replication_role = replica; -- foreign keys set no order
    FOR name IN SELECT oid FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND relname NOT IN ('alembic_version', 'settings')
    LOOP EXECUTE format('DELETE FROM %s', name); END LOOP;
    DELETE FROM settings WHERE key <> 'installation_id';
    PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace;
END $$
"""


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that runs; its databases are made by the fixtures."""

    #: where its socket is
    folder: Path
    #: of databases
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement and return its rows."""
        return ask(self.url(database), statement)

    def make(self, template: str = "template1") -> str:
        """Make a database and return its URL."""
        name = f"test{next(self.numbers)}"
        copied = f'CREATE DATABASE {name} TEMPLATE "{template}" STRATEGY file_copy'
        self.execute(copied)
        return self.url(name)

    def empty(self, url: str) -> None:
        """Return a database with our tables to its state after the migrations."""
        self.execute(EMPTY, name_of(url))

    def drop(self, url: str) -> None:
        """Remove a database, even if it is in use."""
        self.execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement and return its rows."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def name_of(url: str) -> str:
    """Return the database of a URL."""
    return url.partition("?")[0].rpartition("/")[2]


def _remove_abandoned() -> None:
    """Remove the folders of runs that were killed: each has 40 MB."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # One that is being made has no server yet.
            if time.time() - folder.stat().st_mtime < 600:
                continue
            number = folder / "data" / "postmaster.pid"
            if number.exists() and Path("/proc", number.read_text().split()[0]).exists():
                continue
            shutil.rmtree(folder)


@contextlib.contextmanager
def running(lab: Path, release: str, *, build: bool = False) -> Iterator[Server]:
    """Start a server and stop it; raise Unavailable if that is impossible.

    `lab` is the cache of test clusters; with `build` a cluster's root file system of this Slurm
    release is built if the server is to run in it and it is missing.
    """
    with found(POSTGRESQL, lab, release, build=build) as programs, serving(programs) as server:
        yield server


@contextlib.contextmanager
def serving(programs: Programs) -> Iterator[Server]:
    """Start a server in a temporary folder and stop it; raise Unavailable if that is impossible."""
    user_id = os.geteuid()
    _remove_abandoned()
    # Not a test's folder: its parents are closed to other users, and a socket's name is short.
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if user_id == 0:
            for entry in (folder, data):
                os.chown(entry, nobody(), nobody())
        seen = programs.sees(folder)
        options = ["--no-sync", "-E", "UTF8", "--locale=C", "-A", "trust", "-U", USER]
        initdb = programs.command("initdb", folder, user_id=user_id, is_never_root=True)
        made = subprocess.run(
            [*initdb, *options, "-D", seen / "data"], capture_output=True, text=True
        )
        if made.returncode:
            raise Unavailable(f"initdb failed: {made.stderr.strip()[-500:]}")
        settings = {**SETTINGS, "unix_socket_directories": str(seen)}
        words = [word for item in settings.items() for word in ("-c", "=".join(item))]
        postgres = programs.command("postgres", folder, user_id=user_id, is_never_root=True)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*postgres, "-D", seen / "data", *words], stdout=log, stderr=log
            )
        try:
            server = Server(folder)
            _wait(server, process)
            yield server
        finally:
            # Immediate shutdown, even with open connections.
            process.send_signal(signal.SIGQUIT)
            process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            server.execute("SELECT 1")
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                log = (server.folder / "log").read_text()
                raise Unavailable(f"the PostgreSQL server did not start: {log[-500:]}") from error
            time.sleep(0.05)


if __name__ == "__main__":
    # By hand: prints the URL of an empty database and serves it until its stdin is closed.
    with running(machine.lab_dir(), machine.slurm_release()) as server:
        print(server.make(), flush=True)
        sys.stdin.read()

"""PostgreSQL: lost connections, rights, settings, and migration from and to SQLite."""

from __future__ import annotations

import datetime
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import autogenerate, migration

from db import tables, unit_of_work, upgrades
from db.postgresql.database import PostgresqlDatabase
from db.stores.settings import SettingStore
from db.tables.jobs import SUBMISSIONS
from orchestrator import errors, jobs, metrics
from orchestrator.controller.session import stores
from tests import builders, postgresql

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


@pytest.fixture
def url(postgresql_server: postgresql.Server, postgresql_template: str) -> Iterator[str]:
    """A database with empty tables."""
    made = postgresql_server.make(postgresql_template)
    yield made
    postgresql_server.drop(made)


@pytest.fixture
def bare(postgresql_server: postgresql.Server) -> Iterator[str]:
    """A database with nothing in it."""
    made = postgresql_server.make()
    yield made
    postgresql_server.drop(made)


def database(url: str, **options: object) -> PostgresqlDatabase:
    return PostgresqlDatabase(sa.make_url(url), **options)  # type: ignore[arg-type]


def refusal(url: str) -> str:
    with stores.Store(url) as store, pytest.raises(errors.DatabaseError) as refused:
        with store.writing() as work:
            work.settings.put("a", "b")
    return str(refused.value)


def test_migrations_make_the_models(url: str) -> None:
    with database(url) as opened, opened.reading() as db:
        context = migration.MigrationContext.configure(
            db, opts={"compare_type": True, "compare_server_default": True}
        )
        assert autogenerate.compare_metadata(context, tables.METADATA) == []


def test_settings_of_each_session(url: str) -> None:
    shown = (
        *("TimeZone", "lock_timeout", "statement_timeout", "tcp_user_timeout"),
        *("tcp_keepalives_idle", "synchronous_commit", "idle_in_transaction_session_timeout"),
        *("transaction_isolation", "transaction_read_only"),
    )
    ask = sa.text(f"SELECT {', '.join(f'current_setting({name!r})' for name in shown)}")
    with database(f"{url}&options=-csearch_path%3Dpublic") as opened:
        with opened.reading() as db:
            read = db.execute(ask).one()
            assert db.scalar(sa.text("SHOW search_path")) == "public"
        with opened.writing() as db:
            written = db.execute(ask).one()
        with opened.writing(durable=True) as db:
            durably = db.execute(ask).one()
    # Where there is no network, no keep-alives are.
    alike = ("UTC", "30s", "10min", "0", "0")
    assert read == (*alike, "on", "0", "repeatable read", "on")
    assert written == (*alike, "off", "20s", "read committed", "off")
    assert durably == (*alike, "on", "20s", "read committed", "off")


def test_one_writer_and_consistent_readers(url: str) -> None:
    with database(url) as first, database(url) as second:
        with first.reading() as before:
            assert SettingStore(before).get("a") is None
            with second.writing() as db:
                SettingStore(db).put("a", "b")
            assert SettingStore(before).get("a") is None
    with database(url) as first, database(f"{url}&options=-clock_timeout%3D50") as second:
        with first.writing() as db:
            with pytest.raises(errors.DatabaseLockedError, match="is locked by another process"):
                with second.writing():
                    pass
            SettingStore(db).put("c", "d")
        with second.writing() as db:
            assert SettingStore(db).get("c") is not None


def test_a_session_that_the_server_ends_stores_nothing_and_the_next_is_new(
    url: str, postgresql_server: postgresql.Server
) -> None:
    end = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        f"WHERE datname = '{postgresql.name_of(url)}' AND application_name = 'orchestrator'"
    )
    with database(url) as opened:
        with pytest.raises(errors.DatabaseError, match="terminating connection"):
            with opened.writing() as db:
                SettingStore(db).put("a", "b")
                assert postgresql_server.execute(end) == [(True,)]
                SettingStore(db).put("c", "d")
        with opened.reading() as db:
            assert SettingStore(db).get("a") is None
        # One that was idle in the pool.
        assert postgresql_server.execute(end) == [(True,)]
        with opened.reading() as db:
            assert SettingStore(db).get("a") is None


def test_a_stopped_writer_loses_its_claim(url: str, postgresql_server: postgresql.Server) -> None:
    with database(url) as stopped, database(url) as other:
        # Which of the two depends on whether libpq reads the server's last words before it finds
        # that the connection is closed.
        with pytest.raises((errors.DatabaseLockedError, errors.DatabaseError)) as caught:
            with stopped.writing() as db:
                SettingStore(db).put("a", "b")
                db.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 1"))
                # It waits for the lock, which is free when the server has ended the session.
                with other.writing() as theirs:
                    SettingStore(theirs).put("a", "c")
                db.execute(sa.text("SELECT 1"))
        assert "was idle for too long" in str(caught.value) or "cannot be reached" in str(
            caught.value
        )
        with other.reading() as db:
            assert SettingStore(db).get("a") == "c"


def test_first_use_by_many_at_once(bare: str) -> None:
    ready = threading.Barrier(4)
    result: list[str] = []

    def use() -> None:
        with stores.Store(bare) as store:
            ready.wait()
            with store.writing() as work:
                result.append(work.settings.installation_id())

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 4 and len(set(result)) == 1


def older(tmp_path: Path, head: str) -> upgrades.Migrations:
    """Our migrations up to one of them."""
    folder = tmp_path / "migrations"
    shutil.copytree(upgrades.SHIPPED.folder, folder)
    for file in folder.glob("versions/revision_*.py"):
        if file.stem > f"revision_{head}":
            file.unlink()
    return upgrades.Migrations(folder=folder, head=head)


def test_an_older_database_is_upgraded(bare: str, tmp_path: Path) -> None:
    with database(bare, migrations=older(tmp_path, "0001")) as first, first.writing() as db:
        for words in (
            "INSERT INTO submissions VALUES "
            "(1,'abcd00000001','c','slurm','n','/r','2026-01-01','s','{}','{}')",
            "INSERT INTO jobs (row, submission_id, array_task, state, settled, created_at, "
            "attempt, restart_count, labels, misses, version) VALUES "
            "(7, 1, 0, 'RUNNING', false, '2026-01-01', 0, 0, '[]', 0, 3)",
            "INSERT INTO metrics VALUES "
            "(5, 7, 11, 'loss', 0.5, '', 3, NULL, NULL, 8, NULL, 0, 'jsonl', NULL, NULL)",
        ):
            db.execute(sa.text(words))
    with stores.Store(bare) as store:
        assert store.upgrade() == ("0001", upgrades.SHIPPED.head, None)
        with store.writing() as work:
            again = jobs.Metric(name="loss", value=float("nan"), attempt=0, source="jsonl")
            work.metrics.add(7, [metrics.ParsedLine.of(again)])
            reported = [(row.id, row.step, str(row.value)) for row in work.metrics.rows([40, 48])]
            assert reported == [(40, 3, "0.5"), (48, None, "None")]
            assert add(work, "abcd00000002") == 8
        assert store.check() == []


def add(work: unit_of_work.UnitOfWork, token: str) -> int:
    record = builders.make_submission(1, NOW, token=token, name="digits")
    return work.jobs.add_submission(record, labels=["a"])[0].row


def test_databases_that_are_not_ours(
    bare: str, url: str, postgresql_server: postgresql.Server
) -> None:
    postgresql_server.execute("CREATE TABLE songs (title text)", postgresql.name_of(bare))
    assert "is a database of another program" in refusal(bare)
    postgresql_server.execute(
        "UPDATE alembic_version SET version_num = '9999'", postgresql.name_of(url)
    )
    with stores.Store(url) as store, pytest.raises(errors.NewerDatabaseError) as refused:
        with store.reading():
            pass
    assert str(refused.value) == (
        f"postgresql://orchestrator@/{postgresql.name_of(url)} was written by a newer version of "
        f"orchestrator (its schema is 9999, this version knows {upgrades.SHIPPED.head}). "
        "Use that version, or restore a backup made before the upgrade."
    )


def test_errors_of_the_server_name_the_fix(bare: str, postgresql_server: postgresql.Server) -> None:
    name = postgresql.name_of(bare)
    host = f"host={postgresql_server.folder}"
    for words in (
        "DROP ROLE IF EXISTS guest",
        "CREATE ROLE guest LOGIN",
        f"ALTER ROLE guest IN DATABASE {name} SET search_path TO nowhere",
    ):
        postgresql_server.execute(words)
    assert refusal(f"postgresql://ann:secret@/{name}?{host}") == (
        f"postgresql://ann:***@/{name} has no such user. Ask the administrator of the server: "
        'createuser NAME (role "ann" does not exist).'
    )
    assert refusal(f"postgresql://orchestrator@/missing?{host}") == (
        "postgresql://orchestrator@/missing does not exist. Create it, or ask the administrator "
        "of the server: "
        'createdb -O USER NAME (database "missing" does not exist).'
    )
    assert refusal(f"postgresql://guest@/{name}?{host}") == (
        f"postgresql://guest@/{name} has none of the schemas in search_path. "
        "Create one: CREATE SCHEMA AUTHORIZATION CURRENT_USER"
    )
    # As PostgreSQL 15 has it for all but the owner of a database.
    assert refusal(f"postgresql://guest@/{name}?{host}&options=-csearch_path%3Dpublic") == (
        f"postgresql://guest@/{name} denies this user a permission (permission denied for schema "
        "public). Use a database of your own (createdb -O USER NAME), or a schema: "
        "CREATE SCHEMA AUTHORIZATION USER"
    )
    assert refusal(f"postgresql://ann@/{name}?host={postgresql_server.folder}/no").startswith(
        f"postgresql://ann@/{name} cannot be reached (connection to server on socket "
    )
    assert refusal("postgresql://ann@127.0.0.1:9/x") == (
        "postgresql://ann@127.0.0.1:9/x cannot be reached (connection to server at "
        '"127.0.0.1", port 9 failed: Connection refused). '
        "Check that the server is running, and the network."
    )
    assert refusal(f"postgresql://ann@/{name}?{host}&colour=red").startswith(
        f"postgresql://ann@/{name} cannot be reached (invalid connection option"
    )


def test_psycopg_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "db.postgresql.database")
    monkeypatch.delattr("db.postgresql.database")
    with pytest.raises(errors.DatabaseError) as refused:
        stores.Store("postgresql://ann@db/x")
    assert str(refused.value) == (
        "PostgreSQL needs psycopg, which is not installed (import of psycopg halted; None in "
        "sys.modules). Install it: pip install 'psycopg[binary]>=3.2'"
    )


def test_there_and_back(url: str, tmp_path: Path) -> None:
    begun, target = tmp_path / "x.db", tmp_path / "backup.db"
    with stores.Store(begun) as store:
        with store.writing() as work:
            first = add(work, "abcd00000001")
            metric = jobs.Metric(name="loss", value=0.5, step=3, time=NOW, source="jsonl")
            work.metrics.add(first, [metrics.ParsedLine.of(metric)])
            installation = work.settings.installation_id()
            gone = add(work, "abcd00000002")
        with store._database.writing() as db:
            db.execute(sa.delete(SUBMISSIONS).where(SUBMISSIONS.c.token.like("%2")))
        with store.reading() as work:
            before = (work.jobs.find(jobs.JobQuery()), metrics_of(work, first))
        assert store.copy_to(url) > 0
        with pytest.raises(errors.ConflictError, match="is not empty: submissions has rows"):
            store.copy_to(url)
    with stores.Store(url) as server:
        server.backup(target)
        with pytest.raises(errors.ConflictError, match=r"backup\.db exists"):
            server.backup(target)
    assert [path.name for path in tmp_path.glob("backup.db*")] == ["backup.db"]
    for database in (url, target):
        with stores.Store(database) as copy, copy.writing() as work:
            assert (work.jobs.find(jobs.JobQuery()), metrics_of(work, first)) == before
            assert work.settings.installation_id() == installation
            # As ever, a number is not given twice.
            assert add(work, "abcd00000003") == gone + 1


def metrics_of(work: unit_of_work.UnitOfWork, row: int) -> list[jobs.Metric]:
    return work.metrics.by_job(metrics.MetricQuery(job_rows=[row]))[row]

"""The schema of a database file: migrations, upgrades, files that are refused."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import autogenerate, migration, script

from db import tables, upgrades
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
from orchestrator import errors, jobs, metrics
from orchestrator.controller.session import stores

Opened = Callable[..., SqliteDatabase]
ROOT = Path(upgrades.__file__).parents[1]


def test_migrations_make_the_models(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with database.reading() as db:
        context = migration.MigrationContext.configure(
            db, opts={"compare_type": True, "render_as_batch": True}
        )
        assert autogenerate.compare_metadata(context, tables.METADATA) == []
    # compare_metadata sees no names of SQLite's constraints and no AUTOINCREMENT.
    expected_path = tmp_path / "expected.db"
    fresh = sa.create_engine(f"sqlite:///{expected_path}")
    tables.METADATA.create_all(fresh)
    fresh.dispose()
    made, expected = statements(tmp_path / "x.db"), statements(expected_path)
    # Alembic does not compare views; tests that read from the view cover it.
    assert made.pop("metrics")
    assert {name: sql for name, sql in made.items() if "alembic_version" not in name} == expected


def statements(path: Path) -> dict[str, list[str]]:
    """Return the words of each statement; constraints may stand in any order."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    return {name: sorted((sql or "").replace(",", " ").split()) for name, sql in rows}


def test_head_is_the_newest_migration() -> None:
    result = script.ScriptDirectory.from_config(upgrades.alembic_config(upgrades.SHIPPED))
    assert result.get_heads() == [upgrades.SHIPPED.head]


def test_alembic_is_not_imported_for_a_current_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.reading():
        pass
    code = (
        "import pathlib, sys\n"
        "from db.sqlite.database import SqliteDatabase\n"
        "with SqliteDatabase(pathlib.Path(sys.argv[1])) as database, database.writing(): pass\n"
        "sys.exit('alembic' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=ROOT)


@pytest.fixture
def newer(tmp_path: Path) -> upgrades.Migrations:
    """Our migrations and one more."""
    folder = tmp_path / "migrations % more"
    shutil.copytree(upgrades.SHIPPED.folder, folder)
    (folder / "versions" / "revision_9999.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f"revision, down_revision = '9999', '{upgrades.SHIPPED.head}'\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('submissions', recreate='always') as batch:\n"
        "        batch.add_column(sa.Column('extra', sa.Text()))\n"
    )
    return upgrades.Migrations(folder=folder, head="9999")


def test_older_database_is_copied_and_upgraded(
    tmp_path: Path, opened: Opened, newer: upgrades.Migrations
) -> None:
    path = tmp_path / "x.db"
    insert = (
        "INSERT INTO submissions VALUES "
        "(1,'t','c','slurm','n','/r','2026-01-01','s','{}','{}',NULL)"
    )
    with SqliteDatabase(path) as database, database.writing() as db:
        db.execute(sa.text(insert))
        db.execute(
            sa.text(
                "INSERT INTO jobs (row, submission_id, array_task, state, settled, created_at, "
                "attempt, restart_count, labels, misses, version) "
                "VALUES (1, 1, 0, 'RUNNING', 0, '2026-01-01', 0, 0, '[]', 0, 0)"
            )
        )
    database = opened(path, migrations=newer)
    with database.reading() as db:
        # The table was copied and dropped; its children are still there.
        assert db.execute(sa.text("SELECT row FROM jobs")).all() == [(1,)]
        assert db.execute(sa.text("SELECT extra FROM submissions")).all() == [(None,)]
    assert database.version() == "9999"
    (backup,) = tmp_path.glob(f"x.db.{upgrades.SHIPPED.head}.*.backup")
    assert backup.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (
            upgrades.SHIPPED.head,
        )
    assert database.upgrade() == ("9999", None)


def test_first_revision_with_rows(tmp_path: Path, opened: Opened) -> None:
    first = upgrades.Migrations(folder=tmp_path / "migrations", head="0001")
    shutil.copytree(upgrades.SHIPPED.folder, first.folder)
    for newer in first.folder.glob("versions/revision_*.py"):
        if newer.stem > "revision_0001":
            newer.unlink()
    path = tmp_path / "x.db"
    with SqliteDatabase(path, migrations=first) as database, database.writing() as db:
        db.execute(
            sa.text(
                "INSERT INTO submissions VALUES "
                "(1,'abcd00000001','c','slurm','n','/r','2026-01-01 00:00:00','s','{}','{}')"
            )
        )
        db.execute(
            sa.text(
                "INSERT INTO jobs (row, submission_id, array_task, state, settled, created_at, "
                "attempt, restart_count, labels, misses, version) VALUES "
                "(7, 1, 0, 'NOT_SUBMITTED', 1, '2026-01-01 00:00:00', 0, 0, '[]', 0, 3)"
            )
        )
        db.execute(
            sa.text("INSERT INTO log_cursors VALUES (4, 7, '/r/1.out', '1', '2', 3, 3, '', :at)"),
            {"at": "2026-01-01 00:00:00"},
        )
        for values in (
            "(1, 7, 11, 'loss', 0.5, '', 3, 1, NULL, 8, '2026-01-01 00:00:00', 0, 'log:a', 4, 2)",
            "(2, 7, 12, 'lr', 0.1, '', 3, 1, NULL, 8, NULL, 0, 'log:a', 4, 2)",
            "(5, 7, 13, 'loss', NULL, '', 4, 1, NULL, 8, NULL, 0, 'log:a', 4, 3)",
            "(6, 7, 14, 'loss', 0.25, '', NULL, NULL, 0, NULL, NULL, 1, 'jsonl', NULL, NULL)",
        ):
            db.execute(sa.text(f"INSERT INTO metrics VALUES {values}"))
    with stores.Store(path) as store, store.writing() as work:
        job = work.jobs.get(7)
        assert job is not None
        assert (job.resend_at, job.refusals, job.version, job.ended) == (None, 0, 3, True)
        assert job.tracked_name is None
        assert work.sweeps.newest() == []
        assert [
            (item.name, str(item.value), item.step, item.world_size)
            for item in work.metrics.by_job(metrics.MetricQuery(job_rows=[7]))[7]
        ] == [
            ("loss", "0.5", 3, 8),
            ("lr", "0.1", 3, 8),
            ("loss", "nan", 4, 8),
            ("loss", "0.25", None, None),
        ]
        about = jobs.Metric(name="loss", value=1.5, attempt=1, source="jsonl")
        assert work.metrics.add(7, [metrics.ParsedLine.of(about)]) == 1
        assert work.metrics.by_job(metrics.MetricQuery(job_rows=[7]))[7][-1] == about
        assert work.jobs.change(7, {"refusals": 1}, version=3)
    assert opened(path).upgrade() == (upgrades.SHIPPED.head, None)
    assert len(list(tmp_path.glob("x.db.0001.*.backup"))) == 1


def test_failed_upgrade_leaves_the_old_tables(
    tmp_path: Path, opened: Opened, newer: upgrades.Migrations
) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.reading():
        pass
    with (newer.folder / "versions" / "revision_9999.py").open("a") as file:
        file.write("    op.execute('DROP TABLE settings')\n    raise ZeroDivisionError\n")
    with pytest.raises(ZeroDivisionError), opened(path, migrations=newer).reading():
        pass
    database = opened(path)
    with database.reading() as db:
        assert SettingStore(db).get("installation_id") is not None
    assert (database.version(), list(database.findings({}))) == (upgrades.SHIPPED.head, [])
    assert list(tmp_path.glob("*.backup")) == []


def test_newer_database_is_refused(
    tmp_path: Path, opened: Opened, newer: upgrades.Migrations
) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path, migrations=newer) as database, database.reading():
        pass
    before = path.read_bytes()
    with stores.Store(path) as store:
        with pytest.raises(errors.NewerDatabaseError) as refusal, store.reading():
            pass
        with pytest.raises(errors.NewerDatabaseError):
            store.upgrade()
    assert str(refusal.value) == (
        f"{path} was written by a newer version of orchestrator "
        f"(its schema is 9999, this version knows {upgrades.SHIPPED.head}). "
        "Use that version, or restore a backup made before the upgrade."
    )
    assert refusal.value.exit_code == 6
    assert path.read_bytes() == before


def test_files_that_are_not_ours(tmp_path: Path, opened: Opened) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database, but long enough to be read as a header " * 20)
    with pytest.raises(errors.DamageError, match="is not a database"):
        with opened(text).writing():
            pass
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE songs (title)")
    with pytest.raises(errors.DamageError, match="is a database of another program"):
        with opened(other).writing():
            pass
    with contextlib.closing(sqlite3.connect(other)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


def test_error_of_a_damaged_database(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing() as db:
        for number in range(500):
            SettingStore(db).put(f"key {number}", "v" * 200)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 60_000)
        file.write(b"\xff" * 40_000)
    database = opened(path)
    try:
        assert list(database.findings({})) != []
    except errors.DamageError as error:
        assert "is damaged" in str(error)

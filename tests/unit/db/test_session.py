"""The database file: how it is made, kept private, upgraded and refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import autogenerate, migration, script

from db import errors, schema, tables
from db.sqlite import error_messages, filesystem
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
from db.tables.jobs import SETTINGS
from orchestrator import errors as our_errors
from orchestrator import jobs, metrics
from orchestrator.controller.session import stores

ROOT = Path(schema.__file__).parents[1]
Opened = Callable[..., SqliteDatabase]


@pytest.fixture
def opened() -> Iterator[Opened]:
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(SqliteDatabase(*args, **options))


def pragma(db: sa.Connection, name: str) -> object:
    return db.scalar(sa.text(f"PRAGMA {name}"))


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "x.db"
    old_umask = os.umask(0)
    store = stores.Store(path)
    try:
        with store.writing() as work:
            work.settings.put("a", "b")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(old_umask)
        store.close()
    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600, "x.db.lock": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700


def test_readable_file_is_tightened(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing():
        pass
    path.chmod(0o644)
    with opened(path).reading():
        assert path.stat().st_mode & 0o777 == 0o600


def test_pragmas_on_a_local_disk(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with database.writing() as db:
        assert (pragma(db, "journal_mode"), pragma(db, "synchronous")) == ("wal", 1)
        assert (pragma(db, "foreign_keys"), pragma(db, "busy_timeout")) == (1, 30000)
    with database.writing(durable=True) as db:
        assert pragma(db, "synchronous") == 2
    with database.writing() as db:
        assert pragma(db, "synchronous") == 1


def test_pragmas_on_a_network_disk(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    database = opened(path, find_locality=lambda path: filesystem.Locality.NETWORK)
    for _ in range(2):
        with database.writing() as db:
            assert (pragma(db, "journal_mode"), pragma(db, "synchronous")) == ("truncate", 2)
            with pytest.raises(BlockingIOError):
                subprocess_lock(path.with_name("x.db.lock"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.db", "x.db-journal", "x.db.lock"]


def subprocess_lock(path: Path) -> None:
    """Try the lock as another process would; raises BlockingIOError when it is held."""
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(11)\n"
    )
    status = subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode
    if status == 11:
        raise BlockingIOError
    assert status == 0


def test_database_that_moved_between_kinds_of_disk(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    for locality, mode in [
        (filesystem.Locality.LOCAL, "wal"),
        (filesystem.Locality.NETWORK, "truncate"),
        (filesystem.Locality.LOCAL, "wal"),
    ]:
        database = SqliteDatabase(path, find_locality=lambda path, found=locality: found)
        with database, database.writing() as db:
            assert pragma(db, "journal_mode") == mode


def test_reading_cannot_change_anything(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with pytest.raises(errors.ReadOnlyError), database.reading() as db:
        SettingStore(db).put("a", "b")
    with database.writing() as db:
        SettingStore(db).put("a", "b")
    with database.reading() as db:
        assert SettingStore(db).get("a") is not None


def test_error_rolls_back(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with pytest.raises(KeyboardInterrupt), database.writing() as db:
        SettingStore(db).put("a", "b")
        raise KeyboardInterrupt
    with database.writing() as db:
        assert SettingStore(db).get("a") is None


def test_migrations_make_the_models(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with database.reading() as db:
        context = migration.MigrationContext.configure(
            db, opts={"compare_type": True, "render_as_batch": True}
        )
        assert autogenerate.compare_metadata(context, tables.METADATA) == []
    # compare_metadata sees no names of SQLite's constraints and no AUTOINCREMENT.
    wanted_path = tmp_path / "wanted.db"
    fresh = sa.create_engine(f"sqlite:///{wanted_path}")
    tables.METADATA.create_all(fresh)
    fresh.dispose()
    made, wanted = statements(tmp_path / "x.db"), statements(wanted_path)
    # A view is no table of Alembic's; that it holds is tested by what is read from it.
    assert made.pop("metrics")
    assert {name: sql for name, sql in made.items() if "alembic_version" not in name} == wanted


def statements(path: Path) -> dict[str, list[str]]:
    """Return the words of each statement; constraints may stand in any order."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    return {name: sorted((sql or "").replace(",", " ").split()) for name, sql in rows}


def test_head_is_the_newest_migration() -> None:
    found = script.ScriptDirectory.from_config(schema.alembic_config(schema.SHIPPED))
    assert found.get_heads() == [schema.SHIPPED.head]


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
def newer(tmp_path: Path) -> schema.Migrations:
    """Our migrations and one more."""
    folder = tmp_path / "migrations % more"
    shutil.copytree(schema.SHIPPED.folder, folder)
    (folder / "versions" / "revision_9999.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f"revision, down_revision = '9999', '{schema.SHIPPED.head}'\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('submissions', recreate='always') as batch:\n"
        "        batch.add_column(sa.Column('extra', sa.Text()))\n"
    )
    return schema.Migrations(folder=folder, head="9999")


def test_older_database_is_copied_and_upgraded(
    tmp_path: Path, opened: Opened, newer: schema.Migrations
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
    (backup,) = tmp_path.glob(f"x.db.{schema.SHIPPED.head}.*.backup")
    assert backup.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (
            schema.SHIPPED.head,
        )
    assert database.upgrade() == ("9999", None)


def test_first_revision_with_rows(tmp_path: Path, opened: Opened) -> None:
    first = schema.Migrations(folder=tmp_path / "migrations", head="0001")
    shutil.copytree(schema.SHIPPED.folder, first.folder)
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
            (one.name, str(one.value), one.step, one.world_size)
            for one in work.metrics.by_job(metrics.MetricQuery(job_rows=[7]))[7]
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
    assert opened(path).upgrade() == (schema.SHIPPED.head, None)
    assert len(list(tmp_path.glob("x.db.0001.*.backup"))) == 1


def test_failed_upgrade_leaves_the_old_tables(
    tmp_path: Path, opened: Opened, newer: schema.Migrations
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
    assert (database.version(), list(database.findings({}))) == (schema.SHIPPED.head, [])
    assert list(tmp_path.glob("*.backup")) == []


def test_newer_database_is_refused(
    tmp_path: Path, opened: Opened, newer: schema.Migrations
) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path, migrations=newer) as database, database.reading():
        pass
    before = path.read_bytes()
    with stores.Store(path) as store:
        with pytest.raises(our_errors.NewerDatabaseError) as refusal, store.reading():
            pass
        with pytest.raises(our_errors.NewerDatabaseError):
            store.upgrade()
    assert str(refusal.value) == (
        f"{path} was written by a newer version of orchestrator "
        f"(its schema is 9999, this version knows {schema.SHIPPED.head}). "
        "Use that version, or restore a backup made before the upgrade."
    )
    assert refusal.value.exit_code == 6
    assert path.read_bytes() == before


def test_files_that_are_not_ours(tmp_path: Path, opened: Opened) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database, but long enough to be read as a header " * 20)
    with pytest.raises(errors.CorruptError, match="is not a database"):
        with opened(text).writing():
            pass
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE songs (title)")
    with pytest.raises(errors.CorruptError, match="is a database of another program"):
        with opened(other).writing():
            pass
    with contextlib.closing(sqlite3.connect(other)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


def test_damage_is_told(tmp_path: Path, opened: Opened) -> None:
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
    except errors.CorruptError as error:
        assert "is damaged" in str(error)


def test_backup(tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with stores.Store(tmp_path / "x.db") as store:
        with store.writing() as work:
            work.settings.put("a", "b")
        store.backup(target)
        with pytest.raises(our_errors.ConflictError, match=r"copy\.db exists; name a new file"):
            store.backup(target)
        with pytest.raises(our_errors.DatabaseError, match="No such file or directory"):
            store.backup(tmp_path / "missing" / "copy.db")
    assert target.stat().st_mode & 0o777 == 0o600
    assert not target.with_name("copy.db-wal").exists()
    with stores.Store(target) as store:
        with store.reading() as work:
            assert work.settings.get("a") == "b"
        assert store.check() == []


URLS = "Write sqlite:////PATH or postgresql://USER@HOST/DATABASE."


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "'nonsense' is not a database URL."),
        ("ann:secret@db", "The value of `database` is not a database URL."),
        ("sqlite://", "The database sqlite:// cannot be used."),
        ("mysql://ann:secret@db/x", "The database mysql://ann:***@db/x cannot be used."),
        (
            "postgresql+asyncpg://ann:secret@db/x?password=secret",
            "The database postgresql+asyncpg://ann:***@db/x cannot be used.",
        ),
        ("postgresql://ann:sec:ret/x", "The value of `database` is not a database URL."),
    ],
)
def test_urls(url: str, message: str) -> None:
    with pytest.raises(our_errors.DatabaseError) as refusal:
        stores.Store(url)
    assert str(refusal.value) == f"{message} {URLS}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:se@cret@db/x", "postgresql://ann:***@db/x"),
        ("postgresql://an/n:secret@db/x", "postgresql://an/n:***@db/x"),
    ],
)
def test_a_password_that_is_not_encoded_is_no_host(url: str, shown: str) -> None:
    with pytest.raises(our_errors.DatabaseError) as refusal:
        stores.Store(url)
    assert str(refusal.value) == (
        f"{shown} has an @ or a / in its user, its password or an option: "
        "write them as %40 and %2F."
    )


def test_url_names_a_file(tmp_path: Path) -> None:
    assert stores.Store(f"sqlite:///{tmp_path}/x.db").shown_name == str(tmp_path / "x.db")


def test_strange_path(tmp_path: Path) -> None:
    path = tmp_path / "a ?b%20#c" / "x.db"
    with stores.Store(path) as store, store.reading():
        assert store.shown_name == str(path)
    assert path.exists()


NOBODY = 65534
WRITE_AS_NOBODY = """
import os, pathlib, sys
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
import sqlalchemy.dialects.sqlite.pysqlite
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    with SqliteDatabase(pathlib.Path(sys.argv[1])).writing() as db:
        SettingStore(db).put("a", "b")
    print("stored")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "named"), [(0o700, 0o400, "x.db"), (0o500, 0o600, "")]
)
def test_read_only_is_told(folder_mode: int, file_mode: int, named: str) -> None:
    """An ordinary user writes, also where the tests run as root."""
    # Not tmp_path: its parents are closed to other users.
    folder = Path(tempfile.mkdtemp())
    path = folder / "x.db"
    try:
        with SqliteDatabase(path) as database, database.writing():
            pass
        path.chmod(file_mode)
        if os.geteuid() == 0:
            for place in (folder, *folder.iterdir()):
                os.chown(place, NOBODY, NOBODY)
        folder.chmod(folder_mode)
        answer = subprocess.run(
            [sys.executable, "-c", WRITE_AS_NOBODY, str(path)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        ).stdout
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert answer == (
        f"ReadOnlyError: {folder / named} is read-only for you. "
        "Make it writable, or set state_dir elsewhere.\n"
    )


def no_writing(path: Path) -> filesystem.Locality:
    raise errors.ReadOnlyError(f"{path} is read-only for you.")


DYING_WRITER = """\
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for text in ("journal_mode=TRUNCATE", "cache_size=5"):
    connection.execute(f"PRAGMA {text}")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE settings SET value = 'new' WHERE key LIKE 'a%'")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_copy_to_read_lacks_what_a_dead_writer_began(tmp_path: Path, opened: Opened) -> None:
    """On a network disk: its rollback journal is copied along."""
    path = tmp_path / "x.db"
    network = opened(path, find_locality=lambda _: filesystem.Locality.NETWORK)
    with network.writing() as db:
        rows = [{"key": f"a{n}", "value": "old" * 100} for n in range(500)]
        db.execute(SETTINGS.insert(), rows)
    network.close()
    subprocess.run([sys.executable, "-c", DYING_WRITER, str(path)], check=False)
    assert path.with_name("x.db-journal").stat().st_size > 0
    with opened(path, find_locality=no_writing).reading() as db:
        assert db.scalars(sa.select(SETTINGS.c.value).distinct()).all().count("new") == 0
        assert pragma(db, "quick_check") == "ok"


DYING_READER = """\
import os, pathlib, signal, sys
from db import errors
from db.sqlite.database import SqliteDatabase
def no_writing(path):
    raise errors.ReadOnlyError("")
with SqliteDatabase(pathlib.Path(sys.argv[1]), find_locality=no_writing).reading():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_copies_of_killed_readers_do_not_pile_up(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, place = tmp_path / "x.db", tmp_path / "tmp"
    place.mkdir()
    with SqliteDatabase(path) as database, database.writing():
        pass
    argv = [sys.executable, "-c", DYING_READER, str(path)]
    subprocess.run(argv, check=False, cwd=ROOT, env={**os.environ, "TMPDIR": str(place)})
    (abandoned,) = place.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with opened(path, find_locality=no_writing).reading():
        (ours,) = place.iterdir()
        assert ours != abandoned
        with opened(path, find_locality=no_writing).reading():
            assert len(list(place.iterdir())) == 2, "what is in use stays"


def test_what_was_written_while_it_was_copied_is_copied_anew(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing():
        pass
    copyfile, values = shutil.copyfile, iter("ab")

    def copy_and_write(source: Path, target: Path) -> None:
        copyfile(source, target)
        for value in values:
            with SqliteDatabase(path) as other, other.writing() as db:
                SettingStore(db).put("k", value)
            break

    monkeypatch.setattr(shutil, "copyfile", copy_and_write)
    with opened(path, find_locality=no_writing).reading() as db:
        assert SettingStore(db).get("k") == "b"


def test_lock_that_is_not_given_up_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder,
        contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as refusal:
            other.execute("BEGIN IMMEDIATE")
    plain = error_messages.translate(refusal.value, path)
    assert isinstance(plain, errors.LockedError)
    assert str(plain) == (
        f"{path} is locked by another process for too long. "
        f"`fuser {path}` shows which one; try again when it has ended."
    )

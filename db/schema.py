"""Which version of the tables a database has, and how it gets to ours.

Alembic takes a quarter of a second to import, so it is imported only when there is work for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
import secrets
import sqlite3
import string
from typing import TYPE_CHECKING

import sqlalchemy as sa

from db import errors

if TYPE_CHECKING:
    from alembic import config

_INSTALLATION_ID_LETTERS = 4
_REVISION = re.compile(r"[0-9]{4}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Migrations:
    """A folder of Alembic migrations and the revision they lead to."""

    folder: pathlib.Path
    #: revisions are numbers with leading zeros, so that newer is greater
    head: str


SHIPPED = Migrations(folder=pathlib.Path(__file__).parent / "migrations", head="0009")


def read_version(connection: sa.Connection, place: str) -> str | None:
    """Return the revision of the tables; none in an empty database, which people call `place`.

    Raises CorruptError for a database that is somebody else's.
    """
    tables = sa.inspect(connection).get_table_names()
    if "alembic_version" in tables:
        version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        if version is not None and not _REVISION.fullmatch(str(version)):
            raise errors.DamagedValueError(
                "alembic_version", "version_num", version, "the number of a revision"
            )
        if version is not None:
            return str(version)
    if "submissions" in tables:
        raise errors.DamagedValueError("alembic_version", "version_num", None, "")
    if set(tables) - {"alembic_version"}:
        raise errors.CorruptError(
            f"{place} is a database of another program. "
            "Set state_dir, or database, to a place of its own."
        )
    return None


def check_version(version: str | None, migrations: Migrations, place: str) -> bool:
    """Return whether `version` is ours; raises NewerSchemaError when it is from the future."""
    if version is not None and version > migrations.head:
        raise errors.NewerSchemaError(
            f"{place} was written by a newer version of orchestrator "
            f"(its tables are {version}, this one knows {migrations.head}). "
            "Use that version, or restore a backup made before the upgrade."
        )
    return version == migrations.head


def migrate(connection: sa.Connection, migrations: Migrations) -> None:
    """Bring the tables to the newest revision, inside the transaction that is open."""
    from alembic import command

    settings = alembic_config(migrations)
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
    _name_installation(connection)


def alembic_config(migrations: Migrations) -> config.Config:
    """Return Alembic's configuration for `migrations`; no alembic.ini is needed."""
    from alembic import config

    settings = config.Config()
    # ConfigParser reads % as the start of a reference.
    settings.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


def copy_database(source: sqlite3.Connection, target: pathlib.Path) -> None:
    """Copy a live database to the new file `target` (0600) with SQLite's backup API.

    It has its name when all of it is on the disk. Raises FileExistsError when there is such a file.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            source.backup(copy)
            # A copy stands alone: without it the journal mode of the original makes it need -wal.
            copy.execute("PRAGMA journal_mode=DELETE")
        sync(draft)
        _publish(draft, target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: pathlib.Path, target: pathlib.Path) -> None:
    try:
        # Unlike a rename, this refuses a name that was taken meanwhile.
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links.
        draft.rename(target)


def sync(path: pathlib.Path) -> None:
    """Let the content of a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_installation(connection: sa.Connection) -> None:
    name = "".join(
        secrets.choice(string.ascii_lowercase + string.digits)
        for _ in range(_INSTALLATION_ID_LETTERS)
    )
    connection.execute(
        sa.text(
            "INSERT INTO settings (key, value) SELECT 'installation_id', :name "
            "WHERE NOT EXISTS (SELECT 1 FROM settings WHERE key = 'installation_id')"
        ),
        {"name": name},
    )

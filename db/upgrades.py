"""The upgrade of a database to the newest schema version, with Alembic migrations.

Alembic takes a quarter of a second to import, so it is imported only for an upgrade.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import secrets
import string
from typing import TYPE_CHECKING

import sqlalchemy as sa

from db.tables import column_types
from orchestrator import errors

if TYPE_CHECKING:
    from alembic import config

_INSTALLATION_ID_LETTERS = 4
_REVISION = re.compile(r"[0-9]{4}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Migrations:
    """A folder of Alembic migrations and the revision they lead to."""

    folder: pathlib.Path
    #: numbers with leading zeros, so that a newer revision is greater
    head: str


SHIPPED = Migrations(folder=pathlib.Path(__file__).parent / "migrations", head="0011")


def read_version(connection: sa.Connection, shown_name: str) -> str | None:
    """Return the revision of the tables, or None for an empty database.

    `shown_name` is the database in errors. Raises DamageError for one of another program.
    """
    tables = sa.inspect(connection).get_table_names()
    version = None
    if "alembic_version" in tables:
        version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    if version is not None and not _REVISION.fullmatch(str(version)):
        raise column_types.DamagedValueError(
            "alembic_version", "version_num", version, "the number of a revision"
        )
    if version is None and "submissions" in tables:
        raise column_types.DamagedValueError("alembic_version", "version_num", None, "")
    if version is None and set(tables) - {"alembic_version"}:
        raise errors.DamageError(
            f"{shown_name} is a database of another program. "
            "Set state_dir or database to another path."
        )
    return None if version is None else str(version)


def is_current(version: str | None, migrations: Migrations, shown_name: str) -> bool:
    """Return whether this is our revision; raises NewerDatabaseError for a newer one."""
    if version is not None and version > migrations.head:
        raise errors.NewerDatabaseError(
            f"{shown_name} was written by a newer version of orchestrator "
            f"(its schema is {version}, this version knows {migrations.head}). "
            "Use that version, or restore a backup made before the upgrade."
        )
    return version == migrations.head


def migrate(connection: sa.Connection, migrations: Migrations) -> None:
    """Upgrade the tables to the newest revision within the open transaction."""
    from alembic import command

    settings = alembic_config(migrations)
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
    letters = string.ascii_lowercase + string.digits
    name = "".join(secrets.choice(letters) for _ in range(_INSTALLATION_ID_LETTERS))
    connection.execute(
        sa.text(
            "INSERT INTO settings (key, value) SELECT 'installation_id', :name "
            "WHERE NOT EXISTS (SELECT 1 FROM settings WHERE key = 'installation_id')"
        ),
        {"name": name},
    )


def alembic_config(migrations: Migrations) -> config.Config:
    """Return the configuration of Alembic; it needs no alembic.ini."""
    from alembic import config

    settings = config.Config()
    # ConfigParser reads % as the start of a reference.
    settings.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings

"""The backups of a database file that lie beside it."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib

_END = ".backup"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backup:
    """A backup beside the database."""

    path: pathlib.Path
    made_at: datetime.datetime
    size_bytes: int


def new_path(database: pathlib.Path, version: str) -> pathlib.Path:
    """Return the name of a backup that is made now; `version` is that of the tables."""
    now = datetime.datetime.now(datetime.UTC)
    return database.with_name(f"{database.name}.{version}.{now:%Y%m%dT%H%M%S%fZ}{_END}")


def find(database: pathlib.Path) -> list[Backup]:
    """Return the backups beside a database, the newest first."""
    found = []
    try:
        places = [*database.parent.iterdir()]
    except OSError:
        return []
    for path in places:
        if not (path.name.startswith(f"{database.name}.") and path.name.endswith(_END)):
            continue
        try:
            status = path.stat()
        except OSError:
            continue
        made_at = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
        found.append(Backup(path=path, made_at=made_at, size_bytes=status.st_size))
    return sorted(found, key=lambda one: one.made_at, reverse=True)


def way_back(database: pathlib.Path) -> str:
    """Return what to do where a database file is damaged."""
    newest = next(iter(find(database)), None)
    told = "there is none beside it" if newest is None else f"newest: {newest.path}"
    return (
        "`orchestrator db check` lists what is damaged; `orchestrator db restore BACKUP` puts a "
        f"backup in its place ({told})."
    )

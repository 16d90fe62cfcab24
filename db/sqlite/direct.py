"""Reading one submission without SQLAlchemy, whose import takes 0.3 s of CPU time.

Each start of a local job needs it. Anything but a plain, readable SQLite file of our schema version
is left to the store, whose errors name the problem.
"""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from typing import Any

_COLUMNS = ("name", "scheduler", "run_dir", "script", "spec", "provenance", "request_sha256")
_PREFIX = "sqlite:///"


def submission(url: str, token: str, task: int | None) -> dict[str, Any] | None:
    """Return the columns of the submission with this array task (None: no array), if it exists.

    Raises sqlite3.Error if the store has to be used.
    """
    if not url.startswith(f"{_PREFIX}/") or any(sign in url for sign in "?#%"):
        raise sqlite3.NotSupportedError(url)
    # Read-only, because otherwise a missing file would be created.
    uri = f"{pathlib.Path(url.removeprefix(_PREFIX)).as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        names = ", ".join(f"submissions.{name}" for name in _COLUMNS)
        row = connection.execute(
            f"SELECT {names} FROM submissions JOIN jobs ON jobs.submission_id = submissions.id "
            "WHERE submissions.token = ? AND jobs.array_task_id IS ?",
            (token, task),
        ).fetchone()
    return None if row is None else dict(zip(_COLUMNS, row, strict=True))

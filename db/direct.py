"""One look into the database without SQLAlchemy, whose import takes 0.3 s of a processor.

Each start of a local job needs it. What is not a plain SQLite file of our version that can be read
at once is left to the store, which also says what is wrong.
"""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from typing import Any

_COLUMNS = ("name", "scheduler", "run_dir", "script", "spec", "provenance", "request_sha256")
_PREFIX = "sqlite:///"


def submission(url: str, token: str, task: int | None) -> dict[str, Any] | None:
    """Return the columns of a submission that has this array task (none: that is no array).

    None where it has not. Raises sqlite3.Error where the store has to look.
    """
    if not url.startswith(f"{_PREFIX}/") or any(sign in url for sign in "?#%"):
        raise sqlite3.NotSupportedError(url)
    # Read-only, or a file that is away would be made.
    uri = f"{pathlib.Path(url.removeprefix(_PREFIX)).as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        names = ", ".join(f"submissions.{name}" for name in _COLUMNS)
        found = connection.execute(
            f"SELECT {names} FROM submissions JOIN jobs ON jobs.submission_id = submissions.id "
            "WHERE submissions.token = ? AND jobs.array_task_id IS ?",
            (token, task),
        ).fetchone()
    return None if found is None else dict(zip(_COLUMNS, found, strict=True))

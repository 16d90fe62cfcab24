"""The process that runs a local job: the runner of orchestrator.local, plus the database.

    python -S -P -m orchestrator.controller.keeper SPOOL KEY [SHARED_FOLDER...]

It lives as long as the job, so it loads the standard library alone; a child reads the database.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.local import machine, records, runner, verification


def main(arguments: list[str]) -> int:
    """Run one job; the database's URL is in the environment."""
    shared_folders = [Path(folder) for folder in arguments[2:]]
    database = os.environ[machine.DATABASE]

    def look_up(entry: records.Entry) -> verification.Submitted:
        return submitted(database, entry, shared_folders)

    return runner.main(arguments, database=database, look_up=look_up)


def submitted(
    database: str, entry: records.Entry, shared_folders: Sequence[Path]
) -> verification.Submitted:
    """Return what was submitted as this job, from the database.

    Raises DatabaseError and NotFoundError.
    """
    import hashlib
    import json
    import sqlite3

    from db.sqlite import direct
    from orchestrator import config, errors, files, specs
    from orchestrator.controller.metrics import log_paths

    shown_name = config.without_password(database)
    try:
        path = database.removeprefix("sqlite:///")
        if path != database and files.exposure(Path(path), shared_folders=shared_folders):
            # The store explains it, or tightens the mode of the file.
            raise sqlite3.NotSupportedError(path)
        row = direct.submission(database, entry.token, entry.task)
    except (sqlite3.Error, OSError):
        row = _through_store(database, entry, shared_folders)
    if row is None or row["scheduler"] != "local":
        raise errors.NotFoundError(
            f"the job is not in {shown_name}; submit it again if it is yours"
        )
    folder = json.loads(row["provenance"]).get("folder")
    if not isinstance(folder, str):
        raise errors.DamagedRowError(
            f"submission {entry.token}: provenance has no folder; "
            "`orchestrator db restore` restores a backup"
        )
    paths_of_logs = log_paths.LogPaths.of_spec(folder, specs.from_json(row["spec"]), row["run_dir"])
    name = f"{row['name']}.{entry.token}"
    paths = paths_of_logs.paths_of_name(name, entry.job_id, str(entry.raw_number))
    stderr = paths["stderr_path"]
    return verification.Submitted(
        request_sha256=row["request_sha256"],
        script_sha256=hashlib.sha256(row["script"].encode()).hexdigest(),
        run_dir=row["run_dir"],
        stdout_path=str(paths["stdout_path"]),
        stderr_path=None if stderr is None else str(stderr),
    )


def _through_store(
    database: str, entry: records.Entry, shared_folders: Sequence[Path]
) -> dict[str, Any] | None:
    """Return the columns of the submission, read through the store."""
    import site

    if sys.flags.no_site:
        site.main()
        of_command = os.environ.get(machine.PYTHONPATH, "").split(os.pathsep)
        sys.path += [path for path in of_command if os.path.isabs(path)]
    from orchestrator import errors
    from orchestrator.controller.session import stores

    with stores.Store(database, shared_folders=shared_folders) as store:
        if not store.exists():
            raise errors.DatabaseError(f"there is no database {store.shown_name}")
        with store.reading() as work:
            submission = work.jobs.submission(entry.token)
            tasks = [job.array_task_id for job in work.jobs.of_submissions([entry.token])]
    return None if submission is None or entry.task not in tasks else dict(vars(submission))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

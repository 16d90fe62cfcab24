"""The process that runs a local job: the runner of orchestrator.local, plus the database.

    python -S -P -m orchestrator.controller.submission.local_keeper SPOOL KEY [SHARED_FOLDER...]

It lives as long as the job, so it loads the standard library alone; a child reads the database.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.local import machine, records, runner, verification


def main(arguments: list[str]) -> int:
    """Run one job; the database's URL is in the environment."""
    shared_folders = [Path(folder) for folder in arguments[2:]]
    database = os.environ[machine.DATABASE]
    return runner.main(
        arguments,
        database=database,
        look_up=lambda entry: submitted(database, entry, shared_folders),
    )


def submitted(
    database: str, entry: records.Entry, shared_folders: Sequence[Path]
) -> verification.Submitted:
    """Return what was submitted as this job, from the database.

    Raises DatabaseError and NotFoundError.
    """
    import hashlib
    import json
    import site

    if sys.flags.no_site:
        site.main()
        of_command = os.environ.get(machine.PYTHONPATH, "").split(os.pathsep)
        sys.path += [path for path in of_command if os.path.isabs(path)]
    from orchestrator import errors
    from orchestrator.controller.session import stores
    from orchestrator.controller.submission import log_paths

    with stores.Store(database, shared_folders=shared_folders) as store:
        if not store.exists():
            raise errors.DatabaseError(f"there is no database {store.shown_name}")
        with store.reading() as work:
            submission = work.jobs.submission(entry.token)
            tasks = [task.array_task_id for task in work.jobs.tasks(entry.token)]
    if submission is None or submission.scheduler != "local" or entry.task not in tasks:
        raise errors.NotFoundError(
            f"the job is not in {store.shown_name}; submit it again if it is yours"
        )
    if "folder" not in json.loads(submission.provenance):
        raise errors.DamagedRowError(
            f"submission {entry.token}: provenance has no folder; "
            "`orchestrator db restore` restores a backup"
        )
    patterns = log_paths.LogPaths.of_submission(submission)
    paths = patterns.paths(entry.job_id, str(entry.raw_number))
    return verification.Submitted(
        request_sha256=submission.request_sha256,
        script_sha256=hashlib.sha256(submission.script.encode()).hexdigest(),
        run_dir=submission.run_dir,
        stdout_path=str(paths["stdout_path"]),
        stderr_path=paths["stderr_path"],
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

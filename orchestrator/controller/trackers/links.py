"""The pages of a job's run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator import files, jobs, specs
from orchestrator.controller.session import contexts, queries
from orchestrator.files import run_folder
from orchestrator.trackers import links, records

#: Written by the job's script: IDs of run and experiment.
_MLFLOW_RUN = "mlflow.run"


def of_job(context: contexts.Context, details: queries.Details) -> Mapping[str, str]:
    """Return addresses by name."""
    job = details.job
    tracking = specs.from_json(details.submission.spec).tracking
    if tracking == jobs.Tracking():
        return {}
    with context.store.reading() as work:
        first_row = work.recovery.chain(job.row)[0]
        first = work.jobs.by_row([first_row])[first_row]
    folder = run_folder.RunFolder(Path(first.run_dir)).tracking(first.array_task_id)
    return links.of_run(
        tracking,
        run_id=records.run_id(first),
        name=first.name,
        token=first.token,
        mlflow=_mlflow_run(folder) if tracking.mlflow_uri else None,
    )


def _mlflow_run(folder: Path) -> tuple[str, str] | None:
    try:
        text = files.read_text(folder / _MLFLOW_RUN, limit_bytes=1024, errors="replace")
        run, experiment = text.split()
    except (OSError, ValueError):
        return None
    return experiment, run

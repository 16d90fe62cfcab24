"""Where Slurm writes a job's logs: from the job's papers, so that an adopted job has them too."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator import jobs, run_folder, specs
from orchestrator.controller import unit_of_work


def of(work: unit_of_work.UnitOfWork, job: jobs.Job, job_id: str) -> dict[str, object]:
    """Return `stdout_path` and `stderr_path` of the job once it has this ID."""
    submission = work.submission_of(job.row)
    if submission is None:
        return {}
    spec = specs.from_json(submission.spec)
    # Relative paths count from where sbatch was called, unless the spec says --chdir (man sbatch).
    folder = Path(json.loads(submission.provenance)["folder"]) / (spec.chdir or "")
    name = run_folder.slurm_name(job.name, job.token)
    array = job.array_task_id is not None
    output = spec.output or run_folder.RunFolder(Path(job.run_dir)).stdout_pattern(array=array)

    def path(pattern: str | None) -> str | None:
        if pattern is None:
            return None
        return str(folder / run_folder.expand(pattern, job_id=job_id, name=name))

    return {"stdout_path": path(output), "stderr_path": path(spec.error)}

"""Where Slurm writes the logs of a job."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from orchestrator import jobs, specs
from orchestrator.files import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPaths:
    """Slurm's filename patterns of one submission."""

    #: of relative paths
    folder: Path
    #: --output and --error; stderr None: same file as stdout
    stdout: str
    stderr: str | None

    @classmethod
    def of_submission(cls, submission: jobs.Submission) -> LogPaths:
        folder = json.loads(submission.provenance)["folder"]
        return cls.of_spec(folder, specs.from_json(submission.spec), submission.run_dir)

    @classmethod
    def of_spec(cls, calling_folder: str | Path, spec: jobs.JobSpec, run_dir: str) -> LogPaths:
        """Return the patterns for a job that is submitted in calling_folder."""
        own = run_folder.RunFolder(Path(run_dir))
        array = spec.array.task_ids is not None
        return cls(
            # man sbatch: relative to the calling folder, or to --chdir.
            folder=Path(calling_folder) / (spec.chdir or ""),
            stdout=spec.output or own.stdout_pattern(array=array),
            stderr=spec.error,
        )

    def paths(self, job: jobs.Job, job_id: str, raw_job_id: str | None = None) -> dict[str, object]:
        """Return the fields `stdout_path` and `stderr_path` of a job with this ID.

        A path with %j, the own number of an array task, is None until the task has started.
        """
        return self.paths_of_name(run_folder.slurm_name(job.name, job.token), job_id, raw_job_id)

    def paths_of_name(
        self, name: str, job_id: str, raw_job_id: str | None = None
    ) -> dict[str, object]:
        """Return the same for a job with this name in Slurm."""
        fields: dict[str, object] = {}
        for field, pattern in (("stdout_path", self.stdout), ("stderr_path", self.stderr)):
            path = pattern and run_folder.expand(
                pattern, job_id=job_id, raw_job_id=raw_job_id, name=name
            )
            fields[field] = os.path.join(self.folder, path) if path else None
        return fields

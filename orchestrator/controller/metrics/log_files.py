"""Where Slurm writes a job's logs: from the job's papers, so that an adopted job has them too."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from orchestrator import jobs, specs
from orchestrator.tracking import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Places:
    """The patterns of one submission, read from its papers once for all its array tasks."""

    #: relative ones count from here
    folder: Path
    #: --output and --error; stderr none: with stdout
    stdout: str
    stderr: str | None

    @classmethod
    def of(cls, submission: jobs.Submission, spec: jobs.JobSpec | None = None) -> Places:
        """Read the papers; `spec` is what they hold, where it was read before."""
        spec = spec or specs.from_json(submission.spec)
        return cls.called_in(json.loads(submission.provenance)["folder"], spec, submission.run_dir)

    @classmethod
    def called_in(cls, calling_folder: str | Path, spec: jobs.JobSpec, run_dir: str) -> Places:
        """Return them without the papers."""
        # Relative paths count from where sbatch was called, unless the spec says --chdir (man
        # sbatch).
        folder = Path(calling_folder) / (spec.chdir or "")
        own = run_folder.RunFolder(Path(run_dir))
        array = spec.array.task_ids is not None
        output = spec.output or own.stdout_pattern(array=array)
        return cls(folder=folder, stdout=output, stderr=spec.error)

    def paths(self, job: jobs.Job, job_id: str, raw_job_id: str | None = None) -> dict[str, object]:
        """Return `stdout_path` and `stderr_path` of the job once it has this ID.

        %j is an array task's own number, which it gets when it starts: none until then.
        """
        return self.paths_of(run_folder.slurm_name(job.name, job.token), job_id, raw_job_id)

    def paths_of(self, name: str, job_id: str, raw_job_id: str | None = None) -> dict[str, object]:
        """Return the same for a job of this name in Slurm."""

        def path(pattern: str | None) -> str | None:
            if pattern is None:
                return None
            found = run_folder.expand(pattern, job_id=job_id, raw_job_id=raw_job_id, name=name)
            return None if found is None else os.path.join(self.folder, found)

        return {"stdout_path": path(self.stdout), "stderr_path": path(self.stderr)}

"""Where Slurm writes the logs of a job."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from orchestrator import errors, jobs, specs
from orchestrator.files import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPaths:
    """Slurm's filename patterns of one submission."""

    #: full name of the job in Slurm
    name: str
    #: of relative paths
    folder: Path
    #: --output and --error; stderr None: same file as stdout
    stdout: str
    stderr: str | None

    @classmethod
    def of_submission(
        cls, submission: jobs.Submission, spec: jobs.JobSpec | None = None
    ) -> LogPaths:
        """Return the patterns; spec: that of the submission, if it is read already."""
        spec = spec or specs.from_json(submission.spec)
        own = run_folder.RunFolder(Path(submission.run_dir))
        return cls(
            name=run_folder.slurm_name(submission.name, submission.token),
            # man sbatch: relative to the calling folder, or to --chdir.
            folder=Path(submission.calling_folder, spec.chdir or ""),
            stdout=spec.output or own.stdout_pattern(array=spec.array.task_ids is not None),
            stderr=spec.error,
        )

    def paths(self, job_id: str, raw_job_id: str | None = None) -> dict[str, str | None]:
        """Return the fields `stdout_path` and `stderr_path` of the job with this ID.

        A path with %j, the own number of an array task, is None until the task has started.
        """
        fields: dict[str, str | None] = {}
        for field, pattern in (("stdout_path", self.stdout), ("stderr_path", self.stderr)):
            path = pattern and run_folder.expand(
                pattern, job_id=job_id, raw_job_id=raw_job_id, name=self.name
            )
            fields[field] = os.path.join(self.folder, path) if path else None
        return fields


def check(spec: jobs.JobSpec, calling_folder: Path) -> None:
    """Raise ConflictError if Slurm would write a log into another folder than it should.

    A job with stored code runs without the folder of its submission, but it has no other log.
    """
    for key, pattern in (("output", spec.output), ("error", spec.error)):
        if (
            pattern
            and not os.path.isabs(pattern)
            and spec.code.tree
            and not calling_folder.is_dir()
        ):
            raise errors.ConflictError(
                f"job.{key} {pattern} is relative to {calling_folder}, which does not exist on "
                "this host. Create it, or submit the job with an absolute path."
            )

"""What a process that refreshes again and again keeps of its last refresh.

With 10,000 jobs in the queue of which nothing is new, to read them from the database, to read
squeue's lines and to judge each job takes seconds of a processor; to see that all is as it was
takes a seventh of it (docs/measured.md).
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence

from db import unit_of_work
from orchestrator import jobs, tracking

#: A row of the database takes more than the job that is made of it.
READ_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heard:
    """Jobs and what was said of them; it is right at any time to forget all of it."""

    #: live jobs by row, as they were read
    live: dict[int, jobs.Job] = dataclasses.field(default_factory=dict)
    #: by row: a job that waits or runs, and the very rows of squeue that told nothing new of it
    quiet: dict[int, tuple[jobs.Job, Sequence[tracking.Observation]]] = dataclasses.field(
        default_factory=dict
    )

    def live_jobs(self, work: unit_of_work.UnitOfWork, cluster: str) -> list[jobs.Job]:
        """Return the jobs that are not settled, oldest first; only the changed ones are read."""
        versions = work.jobs.live_versions(cluster)
        known = {
            row: self.live[row]
            for row, version in versions
            if row in self.live and self.live[row].version == version
        }
        new = [row for row, _ in versions if row not in known]
        # What has changed is let go before it is read anew, and that not all at once.
        self.live.clear()
        for row in self.quiet.keys() - known.keys():
            del self.quiet[row]
        same: dict[object, object] = {}
        for start in range(0, len(new), READ_AT_ONCE):
            query = jobs.JobQuery(rows=new[start : start + READ_AT_ONCE], limit=None)
            known.update((job.row, job) for job in _thin(work.jobs.find(query), same))
        self.live.update((row, known[row]) for row, _ in versions)
        return list(self.live.values())

    def quiet_among(
        self, told: Iterable[tuple[jobs.Job, Sequence[tracking.Observation]]]
    ) -> set[int]:
        """Return the rows of jobs that did not change, and of which squeue says what it said.

        The others are forgotten.
        """
        quiet = {job.row for job, rows in told if self._is_quiet(job, rows)}
        for row in self.quiet.keys() - quiet:
            del self.quiet[row]
        return quiet

    def keep(self, job: jobs.Job, rows: Sequence[tracking.Observation]) -> None:
        """Remember a job about which these rows told nothing new.

        Only where nothing else was asked: what a live row of squeue says needs no clock, no claim
        and no other witness (tracking.following).
        """
        known = {row.job_id for row in rows} == {job.job_id}
        if known and not any(row.state in jobs.TERMINAL for row in rows):
            self.quiet[job.row] = (job, rows)

    def _is_quiet(self, job: jobs.Job, rows: Sequence[tracking.Observation]) -> bool:
        known = self.quiet.get(job.row)
        if known is None or known[0] is not job or len(known[1]) != len(rows):
            return False
        return all(one is other for one, other in zip(known[1], rows, strict=True))


def _thin(found: Iterable[jobs.Job], same: dict[object, object]) -> Iterable[jobs.Job]:
    """Yield jobs whose equal texts and times are one object: jobs differ in few of them."""
    for job in found:
        # Not through dataclasses.replace: these are as new, and nobody else has them.
        for name, value in vars(job).items():
            if isinstance(value, str | datetime.datetime):
                vars(job)[name] = same.setdefault(value, value)
        yield job

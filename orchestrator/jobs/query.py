"""Which jobs to find."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobQuery:
    """Conditions on jobs. All given conditions must hold; of several values of a field, any."""

    #: our row numbers
    rows: Collection[int] = ()
    #: Slurm's: "123" also finds the tasks of array 123
    job_ids: Collection[str] = ()
    names: Collection[str] = ()
    #: the job has all of them
    labels: Collection[str] = ()
    #: names of sweeps: all jobs with that sweep name
    sweeps: Collection[str] = ()
    #: row numbers of sweeps: the newest job of each point
    sweep_rows: Collection[int] = ()
    states: Collection[str] = ()
    partitions: Collection[str] = ()
    cluster: str | None = None
    #: "slurm" or "local"; none: both
    scheduler: str | None = None
    #: not settled, or deferred
    live: bool = False
    #: not settled, or deferred until this moment or earlier
    due: datetime.datetime | None = None
    #: deferred: not submitted, and submitted again automatically
    deferred: bool = False
    #: tracked: not submitted by us
    tracked: bool = False
    settled: bool = False
    #: ended since this moment, not COMPLETED, and without a stored cause
    unexplained_since: datetime.datetime | None = None
    #: the row number is smaller
    below: int | None = None
    #: created or ended since this moment
    since: datetime.datetime | None = None
    #: live, or created or ended since this moment
    live_or_since: datetime.datetime | None = None
    #: the newest jobs only; none: all
    limit: int | None = 100
    #: the limit counts submissions, so that no array is cut
    whole_arrays: bool = False

"""The stored state of querying Slurm."""

from __future__ import annotations

import dataclasses
import datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshState:
    """When Slurm last answered for a cluster, and which process is querying it now."""

    cluster: str
    #: taken before the last successful squeue and sacct were started
    last_good_squeue_at: datetime.datetime | None = None
    last_good_sacct_at: datetime.datetime | None = None
    #: start of the newest refresh
    last_tried_at: datetime.datetime | None = None
    #: none: the newest refresh succeeded
    failing_since: datetime.datetime | None = None
    last_error: str | None = None
    #: process that is refreshing, and the moment at which its claim expires
    holder: str | None = None
    claimed_until: datetime.datetime | None = None

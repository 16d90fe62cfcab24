"""sacctmgr: a user's accounts, and how many jobs a user may have in the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from orchestrator.slurm import fields

_COMMAND = ("sacctmgr", "-n", "-P", "show")
#: The limits of all QOS.
QOS_COMMAND = (
    *(*_COMMAND, "qos"),
    "format=Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs",
)
#: slurmdbd creates this QOS. It applies to associations without DefaultQOS (man sacctmgr).
_DEFAULT_QOS = "normal"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Association:
    """An account that a user may charge, with the limits of its parent accounts."""

    account: str
    #: None: in all partitions
    partition: str | None
    #: quality-of-service levels that may be requested
    qos: tuple[str, ...] = ()
    #: of jobs that request none
    default_qos: str = _DEFAULT_QOS
    #: in the queue; None: no limit
    max_jobs: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmitLimits:
    """How many jobs a user may have in the queue; each array task counts."""

    associations: tuple[Association, ...] = ()
    #: by the name of a QOS with a limit
    by_qos: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def max_jobs(
        self, *, account: str | None, partition: str | None, qos: str | None
    ) -> int | None:
        """Return the smallest limit that applies to such jobs; None: no limit.

        The QOS of a partition is not known here.
        """
        partitions = (None, *(partition or "").split(","))
        matching = [
            association
            for association in self.associations
            if account in (None, association.account) and association.partition in partitions
        ]
        names = {qos} if qos else {association.default_qos for association in matching}
        limits = [self.by_qos.get(name) for name in names]
        return _smallest([*limits, *(association.max_jobs for association in matching)])


def associations_command(user: str) -> list[str]:
    """List a user's accounts; any user may list their own."""
    columns = "Account,Partition,QOS,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs"
    return [*_COMMAND, "associations", f"user={user}", f"format={columns}"]


def parse_associations(text: str) -> list[Association]:
    """Parse the lines `account|partition|qos,qos|qos|number|number`."""
    return [
        Association(
            account=account,
            partition=partition or None,
            qos=tuple(filter(None, qos.split(","))),
            default_qos=default_qos or _DEFAULT_QOS,
            max_jobs=_smallest(map(fields.parse_count, numbers)),
        )
        for account, partition, qos, default_qos, *numbers in _rows(text, 6)
    ]


def parse_qos_limits(text: str) -> dict[str, int]:
    """Parse the lines `name|number|number|number`: the smallest limit by QOS."""
    limits = {
        name: _smallest(map(fields.parse_count, numbers)) for name, *numbers in _rows(text, 4)
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [line.split("|") for line in text.splitlines()]
    return [row for row in rows if len(row) == columns and row[0]]


def _smallest(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)

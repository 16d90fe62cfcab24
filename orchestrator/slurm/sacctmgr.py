"""sacctmgr: a user's accounts, and how many jobs a user may have in the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from orchestrator.slurm import fields

#: slurmdbd creates this QOS. It applies to associations without DefaultQOS (man sacctmgr).
_DEFAULT_QOS = "normal"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Association:
    """An account that a user may charge."""

    account: str
    #: None: in all partitions
    partition: str | None
    #: quality-of-service levels that may be requested
    qos: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssociationLimit:
    """The submit limit of a user's association."""

    account: str
    #: None: in all partitions
    partition: str | None
    #: of jobs that request none
    default_qos: str
    #: None: no limit
    max_jobs: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmitLimits:
    """How many jobs a user may have in the queue; each array task counts."""

    associations: tuple[AssociationLimit, ...] = ()
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
    return _associations_command(user, "Account,Partition,QOS")


def association_limits_command(user: str) -> list[str]:
    """List the limits of a user's associations, including those of parent accounts."""
    return _associations_command(user, "Account,Partition,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs")


def qos_limits_command() -> list[str]:
    """List the limits of all QOS."""
    columns = "Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
    return ["sacctmgr", "-n", "-P", "show", "qos", f"format={columns}"]


def parse_associations(text: str) -> list[Association]:
    """Parse the lines `account|partition|qos,qos`."""
    return [
        Association(
            account=account,
            partition=partition or None,
            qos=tuple(name for name in qos.split(",") if name),
        )
        for account, partition, qos in _rows(text, 3)
    ]


def parse_association_limits(text: str) -> list[AssociationLimit]:
    """Parse the lines `account|partition|qos|number|number`."""
    return [
        AssociationLimit(
            account=account,
            partition=partition or None,
            default_qos=default_qos or _DEFAULT_QOS,
            max_jobs=_smallest(map(fields.parse_count, numbers)),
        )
        for account, partition, default_qos, *numbers in _rows(text, 5)
    ]


def parse_qos_limits(text: str) -> dict[str, int]:
    """Parse the lines `name|number|number|number`: the smallest limit by QOS."""
    limits = {
        name: _smallest(map(fields.parse_count, numbers)) for name, *numbers in _rows(text, 4)
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _associations_command(user: str, columns: str) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", "associations", f"user={user}", f"format={columns}"]


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [line.split("|") for line in text.splitlines()]
    return [row for row in rows if len(row) == columns and row[0]]


def _smallest(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)

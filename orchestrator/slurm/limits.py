"""sacctmgr: how many jobs a user may have in the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from orchestrator.slurm import fields

#: Where an association names none (man sacctmgr, DefaultQOS): slurmdbd makes this one.
_USUAL_QOS = "normal"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """How many jobs a user may have in the queue; tasks of arrays are counted singly."""

    own: tuple[OwnLimit, ...] = ()
    #: by the name of a QOS that has a limit
    by_qos: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def most_jobs(
        self, *, account: str | None, partition: str | None, qos: str | None
    ) -> int | None:
        """Return the least limit that jobs of this kind meet; none: there is none.

        What the QOS of a partition says is not known here.
        """
        wanted = (partition or "").split(",")
        fitting = [
            one
            for one in self.own
            if account in (None, one.account) and (one.partition is None or one.partition in wanted)
        ]
        names = {qos} if qos else {one.default_qos for one in fitting}
        limits = [self.by_qos.get(name) for name in sorted(names)]
        return _least([*limits, *(one.jobs for one in fitting)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnLimit:
    """A user's association: an account, in one partition or in all, and its limit."""

    account: str
    #: none: in all partitions
    partition: str | None
    #: of jobs that name none
    default_qos: str
    #: none: no limit
    jobs: int | None


def sacctmgr_own_limits_command(user: str) -> list[str]:
    """Ask for the limits of a user's associations, those of the accounts above them included."""
    return [
        *("sacctmgr", "-n", "-P", "show", "associations", f"user={user}"),
        "format=Account,Partition,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs",
    ]


def sacctmgr_qos_limits_command() -> list[str]:
    """Ask for the limits of all levels of quality of service."""
    return [
        *("sacctmgr", "-n", "-P", "show", "qos"),
        "format=Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs",
    ]


def parse_sacctmgr_own_limits(text: str) -> list[OwnLimit]:
    """Read sacctmgr's lines `account|partition|qos|number|number`."""
    rows = [line.split("|") for line in text.splitlines()]
    return [
        OwnLimit(
            account=row[0],
            partition=row[1] or None,
            default_qos=row[2] or _USUAL_QOS,
            jobs=_least(map(fields.parse_count, row[3:])),
        )
        for row in rows
        if len(row) == 5 and row[0]
    ]


def parse_sacctmgr_qos_limits(text: str) -> dict[str, int]:
    """Read sacctmgr's lines `name|number|number|number`: the least by name, where there is one."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, *numbers = line.split("|")
        least = _least(map(fields.parse_count, numbers))
        if len(numbers) == 3 and least is not None:
            found[name] = least
    return found


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)

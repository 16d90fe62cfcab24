"""The invariants after every fault, I1 to I5 of docs/reliability.md, as functions of plain data.

Each returns the breaches in words, none when all is well.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.files import run_folder
from tests.cluster import faults

#: Our final state, which evidence that arrives later overrides.
REVISABLE = frozenset({"NOT_SUBMITTED", "LOST"})
#: Slurm shows a memory kill in the row of a step; the row of the job is FAILED.
REFINED = frozenset({("OUT_OF_MEMORY", "FAILED")})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One row of `sacct -X -D` or of squeue: an attempt of a job."""

    job_id: str
    #: NAME.TOKEN
    name: str
    #: first word, `CANCELLED` of `CANCELLED by 0`
    state: str
    #: it got a node once
    started: bool = True

    @property
    def refused(self) -> bool:
        """Slurm keeps a FAILED record of a request that sbatch was refused."""
        return self.state == "FAILED" and not self.started


def executed_twice(journal: str, overlapping: Collection[str] = ()) -> list[str]:
    """I1: no attempt began twice, and none while another of its job was still alive.

    The lines are those of `rows.JOURNALED`: `start NAME JOB_ID ATTEMPT`, and `alive` in the place
    of `start` when the lock of the job's processes was still held. Where the fault is that an
    earlier attempt lives on (row 33), its job's own name is in `overlapping`: what the attempts
    wrote is then the proof.
    """
    begun = collections.Counter(tuple(line.split()[1:]) for line in journal.splitlines())
    return [
        *(f"I1: {line!r}: it began twice" for line, count in begun.items() if count > 1),
        *(
            f"I1: {line!r}: another was running"
            for line in journal.splitlines()
            if line.split()[0] != "start" and line.split()[1].rpartition(".")[0] not in overlapping
        ),
    ]


def unknown_to_us(records: Iterable[Record], known: Collection[Mapping[str, Any]]) -> list[str]:
    """I2: each of our jobs in Slurm is a job of the database, with the ID that it has there."""
    by_token = {str(job["run_dir"]).rpartition(".")[2]: job for job in known}
    installations = {token[: run_folder.INSTALLATION_ID_LENGTH] for token in by_token}
    breaches = []
    for record in records:
        _, token = run_folder.split_name(record.name)
        if token is None or token[: run_folder.INSTALLATION_ID_LENGTH] not in installations:
            continue
        job = by_token.get(token)
        if job is None:
            breaches.append(f"I2: {record} is not in the database")
        elif job["job_id"] != record.job_id and not record.refused:
            breaches.append(f"I2: {record} is {job['job_id']} in the database")
    return breaches


def illegal_steps(job: Mapping[str, Any]) -> list[str]:
    """I3: each event begins in the state where the last one ended; an end is left by requeue only.

    An end may become another end (`FAILED -> OUT_OF_MEMORY`).
    """
    breaches = []
    events = [event for event in job["events"] if event["state"]]
    for before, after in itertools.pairwise(events):
        step = f"{before['state']} -> {after['state']} ({after['detail']})"
        arrow = re.match(r"(\w+) -> (\w+)", after["detail"])
        if arrow and (arrow[1], arrow[2]) != (before["state"], after["state"]):
            breaches.append(f"I3: {job['name']}: {step} does not fit the event before it")
        if after["attempt"] < before["attempt"]:
            breaches.append(f"I3: {job['name']}: {step} goes back to an earlier attempt")
        left_an_end = before["state"] in jobs.TERMINAL and after["state"] not in jobs.TERMINAL
        if (
            left_an_end
            and before["state"] not in REVISABLE
            and after["attempt"] == before["attempt"]
        ):
            breaches.append(f"I3: {job['name']}: {step} without a new attempt")
    if events and events[-1]["state"] != job["state"]:
        breaches.append(f"I3: {job['name']} is {job['state']}, its history says {events[-1]}")
    started, ended = job["started_at"], job["ended_at"]
    if (job["elapsed_seconds"] or 0) < 0 or (started and ended and started > ended):
        breaches.append(f"I3: {job['name']} ended before it began")
    return breaches


def too_many_calls(calls: Sequence[faults.Call], most: Mapping[str, int]) -> list[str]:
    """I4: no command of Slurm's was called more often than its fault allows."""
    count = collections.Counter(call.command for call in calls)
    return [
        f"I4: {command} was called {count[command]} times, at most {bound} are allowed"
        for command, bound in most.items()
        if count[command] > bound
    ]


def disagreements(
    records: Iterable[Record], known: Collection[Mapping[str, Any]], *, runaways: bool = False
) -> list[str]:
    """I5: the final state that we report is that of the job's newest row in `sacct -D`.

    With `runaways` that row may have no end, or be missing: a slurmctld that is killed takes along
    what it had not sent to slurmdbd yet (`sacctmgr show runawayjobs` lists such rows).
    """
    newest = {record.name: record for record in records if not record.refused}
    breaches = []
    for job in known:
        name = str(job["run_dir"]).rpartition("/")[2]
        record = newest.get(name)
        if job["state"] in REVISABLE:
            continue
        if job["state"] not in jobs.TERMINAL:
            breaches.append(f"I5: {name} is still {job['state']}")
        elif runaways and (record is None or record.state not in jobs.TERMINAL):
            continue
        elif record is None:
            breaches.append(f"I5: {name} is {job['state']}, sacct does not know it")
        elif job["state"] != record.state and (job["state"], record.state) not in REFINED:
            breaches.append(f"I5: {name} is {job['state']}, sacct says {record.state}")
    return breaches

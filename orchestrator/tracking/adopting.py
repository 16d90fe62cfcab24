"""A job whose ID is not known yet: found and adopted, still looked for, or never submitted."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from types import MappingProxyType

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import following, verdicts
from orchestrator.tracking.observations import Answers, Observation, Verdict, Witnesses


def judge(
    job: jobs.Job,
    witnesses: Witnesses,
    answers: Answers,
    *,
    submitter_alive: bool,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    rows = (*witnesses.squeue, *witnesses.sacct)
    refused = [row for row in rows if following.never_started(row)]
    taken = [row for row in rows if not following.never_started(row)]
    found = following.choose(taken, witnesses.owner)
    if found is not None:
        return _adopt(job, found, witnesses, answers, grace_seconds=grace_seconds, now=now)
    if witnesses.array_job_id is not None:
        # Slurm has the array, and no record of this task any more.
        task_id = f"{witnesses.array_job_id}_{job.array_task_id}"
        told: dict[str, object] = {"job_id": task_id, "array_job_id": witnesses.array_job_id}
        bound = dataclasses.replace(
            job, job_id=task_id, array_job_id=witnesses.array_job_id, misses=0, missing_since=None
        )
        event = verdicts.event(
            job, now, "adopt", "controller", f"{task_id}, as others of its array"
        )
        return verdicts.joined(
            Verdict(changes={**told, "grace_since": None, "resend_at": None}, events=(event,)),
            following.judge(bound, witnesses, answers, grace_seconds=grace_seconds, now=now),
        )
    if witnesses.owner is not None:
        # The script ran, so Slurm took the job; squeue has forgotten it since.
        changes: dict[str, object] = {
            "job_id": witnesses.owner,
            "raw_job_id": witnesses.owner,
            "resend_at": None,
        }
        adopted = dataclasses.replace(job, job_id=witnesses.owner, raw_job_id=witnesses.owner)
        event = verdicts.event(job, now, "adopt", "record", f"job {witnesses.owner} by its claim")
        return verdicts.joined(
            Verdict(changes=changes, events=(event,)),
            following.judge(adopted, witnesses, answers, grace_seconds=grace_seconds, now=now),
        )
    if job.state is JobState.NOT_SUBMITTED:
        return Verdict()
    if refused and not submitter_alive:
        why = refused[0].reason or "no node has what it asks for"
        return _not_submitted(job, now, f"Slurm refused it: {why}", {"resend_at": None})
    if submitter_alive:
        return Verdict()
    if job.state is JobState.SUBMITTING or job.grace_since is None:
        detail = "the submitting process ended before it stored sbatch's answer; looking for it"
        return Verdict(
            changes={
                "state": JobState.SUBMIT_UNKNOWN,
                "grace_since": now,
                "misses": 0,
                "missing_since": None,
            },
            events=(
                verdicts.event(job, now, "submit", "controller", detail, JobState.SUBMIT_UNKNOWN),
            ),
        )
    if now < job.grace_since:
        # Written by a process whose clock is early: it would be waited for until then.
        return Verdict(changes={"grace_since": now})
    if answers.squeue_at <= job.grace_since:
        return Verdict()
    # The grace counts from the first good answer: before it slurmctld may have been away with the
    # request still in its queue. A failed squeue begins the count anew (controller/refresh.py).
    misses = job.misses + 1
    missing_since = min(job.missing_since or answers.squeue_at, answers.squeue_at)
    waited_seconds = (answers.squeue_at - missing_since).total_seconds()
    if (
        misses >= following.ANSWERS_NEEDED
        and waited_seconds >= grace_seconds
        and (answers.sacct_asked or not answers.accounting)
    ):
        return _not_submitted(
            job,
            now,
            f"Slurm does not know it: {misses} good answers over {waited_seconds:.0f} s",
        )
    return Verdict(changes={"misses": misses, "missing_since": missing_since})


def _adopt(
    job: jobs.Job,
    found: Observation,
    witnesses: Witnesses,
    answers: Answers,
    *,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    rows = (*witnesses.squeue, *witnesses.sacct)
    adopted = dataclasses.replace(job, job_id=found.job_id, raw_job_id=found.raw_job_id)
    mine = dataclasses.replace(
        witnesses,
        squeue=tuple(row for row in witnesses.squeue if row.job_id == found.job_id),
        sacct=tuple(row for row in witnesses.sacct if row.job_id == found.job_id),
    )
    events = [verdicts.event(job, now, "adopt", found.source, f"job {found.job_id} by its token")]
    taken = [row for row in rows if not following.never_started(row)]
    others = sorted({row.job_id for row in taken} - {found.job_id})
    if others:
        detail = f"also under this token: {', '.join(others)}; the script's claim keeps them out"
        events.append(verdicts.event(job, now, "duplicate", found.source, detail))
    return verdicts.joined(
        Verdict(
            changes={
                "job_id": found.job_id,
                "raw_job_id": found.raw_job_id,
                "array_job_id": found.array_job_id,
                "submitted_at": found.submitted_at,
                "grace_since": None,
                "resend_at": None,
            },
            events=tuple(events),
        ),
        following.judge(adopted, mine, answers, grace_seconds=grace_seconds, now=now),
    )


def _not_submitted(
    job: jobs.Job,
    now: datetime.datetime,
    detail: str,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Verdict:
    return Verdict(
        changes={
            "state": JobState.NOT_SUBMITTED,
            "reason": detail,
            "settled": True,
            "observed_at": now,
            **more,
        },
        events=(verdicts.event(job, now, "submit", "controller", detail, JobState.NOT_SUBMITTED),),
    )

"""Subjects and bodies of notifications, and several notifications as one message."""

from __future__ import annotations

import collections
import datetime
import hashlib
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.notices.records import Message, Notice
from orchestrator.schedules.records import Trigger
from orchestrator.text import escaping, nouns
from orchestrator.toml import values

#: Notifications per message that are shown in full; the others are counted.
IN_FULL = 20
#: A longer subject would be folded in mail.
_SUBJECT_CHARACTERS = 150
#: The first pause after a receiver failed, which doubles each time, and the longest one.
_FIRST_SECONDS, _MAX_SECONDS = 60.0, 3600.0
#: After this time a notification is given up.
GIVE_UP_SECONDS = 24 * 3600.0
_MAX_ROWS = 10
#: A job that completed, or that a person ended.
_NOT_FAILED = frozenset({jobs.JobState.COMPLETED, jobs.JobState.CANCELLED, jobs.JobState.REVOKED})
_KIND_WORDS = {
    "slow": "slow job",
    "nan_loss": "NaN loss",
    "missed": "missed time",
}


def is_failure(job: jobs.Job) -> bool:
    """Return whether an ended job has failed, and was not cancelled."""
    return job.state not in _NOT_FAILED


def ended_jobs(ended: Sequence[jobs.Job], cause: str = "") -> Notice:
    """Describe an ended job, or all tasks of an array; `cause` is a sentence about one job."""
    first = ended[0]
    failed = [job for job in ended if is_failure(job)]
    if len(ended) == 1:
        subject = f"{_name(first)}: {first.state}" + (f", {first.cause}" if first.cause else "")
        body = _end_of_job(first, cause)
    else:
        subject = f"{first.array_job_id or '-'} {first.name}: {_state_counts(ended)}"
        body = [f"Array {subject} (@{first.row})", *_cause_counts(failed)]
    if failed:
        body.append(f"`orchestrator explain @{failed[0].row}` shows the cause and the fix")
    return Notice(
        key=f"end:@{first.row}:{sum(job.attempt for job in ended)}",
        kind="failure" if failed else "end",
        subject=_subject(subject),
        body="\n".join(body),
        job_row=first.row,
        labels=first.labels,
    )


def ended_sweep(row: int, name: str, points: int, ended: Sequence[jobs.Job]) -> Notice:
    """Describe a sweep without running points; `ended` are the jobs of its points."""
    failed = [job for job in ended if is_failure(job)]
    missing = points - len(ended)
    counts = _state_counts(ended) + (f", {missing} not submitted" if missing else "")
    subject = f"sweep {name} (@{row}): {counts}"
    show = f"status @{row}` shows its points" if failed else f"report @{row}` shows its results"
    newest = max((job.row for job in ended), default=0)
    body = [f"{points} points of {subject}", *_cause_counts(failed), f"`orchestrator sweep {show}"]
    return Notice(
        # A rerun has other jobs and a requeue has other attempts: it is a new notification.
        key=f"sweep:@{row}:{newest}:{sum(job.attempt for job in ended)}",
        kind="failure" if failed else "end",
        subject=_subject(subject),
        body="\n".join(body),
        sweep_row=row,
        labels=ended[0].labels if ended else (),
    )


def alert(event_row: int, job: jobs.Job, detail: str) -> Notice:
    """Describe an alert; `detail`: "stalled: no output ..."."""
    rule, _, sentence = detail.partition(": ")
    return Notice(
        key=f"alert:{event_row}",
        kind="stall" if rule == "stalled" else rule,
        subject=_subject(f"{_name(job)}: {rule}"),
        body=f"Job {_name(job)} (@{job.row}) is running on {job.node_list or 'its node'}: "
        f"{sentence}\n`orchestrator logs @{job.row}` shows its last output",
        job_row=job.row,
        labels=job.labels,
    )


def never_starts(event_row: int, job: jobs.Job, detail: str) -> Notice:
    """Describe a pending job that can never start."""
    return Notice(
        key=f"never:{event_row}",
        kind="failure",
        subject=_subject(f"{_name(job)}: can never start"),
        body=f"Job {_name(job)} (@{job.row}): {detail}\n"
        f"`orchestrator cancel @{job.row}` removes it",
        job_row=job.row,
        labels=job.labels,
    )


def missed_time(trigger: Trigger, schedule: str) -> Notice:
    """Describe a planned time of a schedule at which nothing was submitted."""
    at = trigger.planned_at.isoformat(timespec="minutes")
    reason = f" ({trigger.reason})" if trigger.reason else ""
    return Notice(
        key=f"missed:{trigger.row}",
        kind="missed",
        subject=_subject(f"schedule {schedule}: {trigger.state} {at}"),
        body=f"Schedule {schedule}, planned for {at}: {trigger.state}{reason}\n"
        f"`orchestrator schedule show {schedule}` shows its times",
        schedule_row=trigger.schedule_row,
    )


def verdict(trigger: Trigger, schedule: str, job: jobs.Job | None) -> Notice:
    """Describe the verdict on a job or sweep that a schedule submitted."""
    at = trigger.planned_at.isoformat(timespec="minutes")
    is_sweep = trigger.sweep_row is not None
    subject = f"sweep @{trigger.sweep_row}" if is_sweep else f"job @{trigger.job_row}"
    sentence = trigger.verdict_detail.get("sentence")
    return Notice(
        key=f"verdict:{trigger.row}",
        kind="regression" if trigger.verdict == "regression" else "verdict",
        subject=_subject(f"schedule {schedule} of {at}: {trigger.verdict}"),
        body=f"Schedule {schedule}, planned for {at}: verdict on {subject}: {trigger.verdict}"
        + (f"\n{sentence}" if sentence else ""),
        schedule_row=trigger.schedule_row,
        sweep_row=trigger.sweep_row,
        job_row=trigger.job_row,
        labels=job.labels if job else (),
    )


def message(notices: Sequence[Notice], channel: str, origin: str, at: datetime.datetime) -> Message:
    """Return these notifications as one message; `origin` identifies our installation."""
    keys = [notice.key for notice in notices]
    digest = hashlib.sha256("\n".join([origin, channel, *keys]).encode()).hexdigest()
    if len(notices) == 1:
        subject, body = notices[0].subject, notices[0].body
    else:
        counts = collections.Counter(notice.kind for notice in notices)
        kinds = ", ".join(
            nouns.count(count, _KIND_WORDS.get(kind, kind)) for kind, count in counts.items()
        )
        parts = [f"{notice.subject}\n\n{notice.body}" for notice in notices[:IN_FULL]]
        if len(notices) > IN_FULL:
            more = len(notices) - IN_FULL
            parts.append(f"and {more} more: `orchestrator notices list` shows all")
        subject, body = f"{len(notices)} notifications: {kinds}", "\n\n".join(parts)
    return Message(
        id=f"{digest[:24]}.{origin}@orchestrator.invalid",
        subject=subject,
        body=body,
        notices=tuple(notices),
        at=at,
    )


def retry_seconds(tries: int, key: str) -> float:
    """Return the pause after so many tries; it differs by key, so that senders do not collide."""
    seconds = min(_FIRST_SECONDS * 2.0 ** min(tries - 1, 20), _MAX_SECONDS)
    draw = int.from_bytes(hashlib.sha256(f"{key}:{tries}".encode()).digest()[:4], "big") / 2**32
    return seconds * (0.8 + 0.4 * draw)


def _name(job: jobs.Job) -> str:
    return f"{job.job_id or f'@{job.row}'} {job.name}"


def _end_of_job(job: jobs.Job, cause: str) -> list[str]:
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    lines = [f"Job {_name(job)} (@{job.row}) ended: {job.state}{code}"]
    if job.started_at is not None and job.ended_at is not None:
        seconds = (job.ended_at - job.started_at).total_seconds()
        nodes = f" on {job.node_list}" if job.node_list else ""
        lines.append(f"It ran for {values.elapsed(seconds)}{nodes}")
    if cause or job.reason not in (None, "None"):
        lines.append(f"Cause: {cause}" if cause else f"Reason: {job.reason}")
    return lines


def _state_counts(ended: Sequence[jobs.Job]) -> str:
    counts = collections.Counter(str(job.state) for job in ended)
    return ", ".join(f"{n} {state}" for state, n in counts.most_common()) or "nothing submitted"


def _cause_counts(failed: Sequence[jobs.Job]) -> list[str]:
    counts = collections.Counter(job.cause or "cause unknown" for job in failed)
    rows = ", ".join(f"@{job.row}" for job in failed[:_MAX_ROWS])
    more = "" if len(failed) <= _MAX_ROWS else f" and {len(failed) - _MAX_ROWS} more"
    causes = ", ".join(f"{n} {cause}" for cause, n in counts.most_common())
    return [f"Failed: {causes} ({rows}{more})"] if failed else []


def _subject(text: str) -> str:
    line = escaping.visible(text)
    return line if len(line) <= _SUBJECT_CHARACTERS else line[: _SUBJECT_CHARACTERS - 3] + "..."

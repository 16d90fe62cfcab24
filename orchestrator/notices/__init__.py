"""What people are told, in words: subjects and bodies, and several notices as one message. Pure."""

from __future__ import annotations

import collections
import datetime
import hashlib
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.notices import records
from orchestrator.text import escaping
from orchestrator.toml import values

Notice = records.Notice
Message = records.Message
Delivery = records.Delivery
StoredEvent = records.StoredEvent

#: Of a message's notices so many are told in full; of the others there is a count.
IN_FULL = 20
#: A subject is no longer, so that it stays one line for a reader of mail.
_SUBJECT_CHARACTERS = 150
#: The first wait after a receiver failed, doubled each time, and the longest.
_FIRST_SECONDS, _LONGEST_SECONDS = 60.0, 3600.0
#: After so long a notice is given up.
GIVE_UP_SECONDS = 24 * 3600.0
#: States of jobs that a person, or nobody, ended.
_NO_FAILURE = frozenset({jobs.JobState.COMPLETED, jobs.JobState.CANCELLED, jobs.JobState.REVOKED})
_WORDS = {
    "end": "end",
    "failure": "failure",
    "regression": "regression",
    "verdict": "verdict",
    "stall": "stall",
    "slow": "slow job",
    "nan_loss": "lost loss",
    "missed": "missed time",
}


def is_failure(job: jobs.Job) -> bool:
    """Tell whether an ended job is one that somebody has to look at."""
    return job.state not in _NO_FAILURE


def of_jobs(ended: Sequence[jobs.Job], cause: str = "") -> Notice:
    """Return what to tell of an ended job, or of all tasks of an array; `cause`: a sentence."""
    first = ended[0]
    attempts = sum(job.attempt for job in ended)
    failed = any(map(is_failure, ended))
    if len(ended) == 1:
        subject = f"{_name(first)}: {first.state}" + (f", {first.cause}" if first.cause else "")
        body = _one(first, cause)
    else:
        subject = f"{first.array_job_id or '-'} {first.name}: {_counts(ended)}"
        body = [f"Array {subject} (@{first.row})", *_causes(ended)]
    if failed:
        worst = next(job for job in ended if is_failure(job))
        body.append(f"`orchestrator explain @{worst.row}` tells why and what helps")
    return Notice(
        key=f"end:@{first.row}:{attempts}",
        kind="failure" if failed else "end",
        subject=_cut(subject),
        body="\n".join(body),
        job_row=first.row,
        labels=first.labels,
    )


def of_sweep(row: int, name: str, points: int, ended: Sequence[jobs.Job]) -> Notice:
    """Return what to tell of a sweep of which no point goes on; `ended`: its points' jobs."""
    failed = any(map(is_failure, ended))
    left = points - len(ended)
    told = _counts(ended) + (f", {left} not submitted" if left else "")
    subject = f"sweep {name} (@{row}): {told}"
    verb = "status" if failed else "report"
    shows = "its points" if failed else "its results"
    newest = max((job.row for job in ended), default=0)
    return Notice(
        # A rerun ends with other jobs, a requeue with other attempts: it is told again.
        key=f"sweep:@{row}:{newest}:{sum(job.attempt for job in ended)}",
        kind="failure" if failed else "end",
        subject=_cut(subject),
        body="\n".join(
            [
                f"{points} points of {subject}",
                *_causes(ended),
                f"`orchestrator sweep {verb} @{row}` shows {shows}",
            ]
        ),
        sweep_row=row,
        labels=ended[0].labels if ended else (),
    )


def of_alert(event: int, job: jobs.Job, detail: str) -> Notice:
    """Return what to tell of an alert, "stalled: no new line ..."; `event`: its number."""
    rule, _, told = detail.partition(": ")
    kind = "stall" if rule == "stalled" else rule
    return Notice(
        key=f"alert:{event}",
        kind=kind,
        subject=_cut(f"{_name(job)}: {rule}"),
        body=f"Job {_name(job)} (@{job.row}) runs on {job.node_list or 'its node'}: {told}\n"
        f"`orchestrator logs @{job.row}` shows what it wrote last",
        job_row=job.row,
        labels=job.labels,
    )


def of_never(event: int, job: jobs.Job, detail: str) -> Notice:
    """Return what to tell of a job that waits in vain: "it can never start: ..."."""
    return Notice(
        key=f"never:{event}",
        kind="failure",
        subject=_cut(f"{_name(job)}: waits in vain"),
        body=f"Job {_name(job)} (@{job.row}): {detail}\n"
        f"`orchestrator cancel @{job.row}` takes it back",
        job_row=job.row,
        labels=job.labels,
    )


def of_firing(
    firing: int,
    schedule: str,
    planned_at: datetime.datetime,
    state: str,
    reason: str,
    *,
    schedule_row: int,
) -> Notice:
    """Return what to tell of a planned time at which nothing was submitted."""
    at = planned_at.isoformat(timespec="minutes")
    return Notice(
        key=f"missed:{firing}",
        kind="missed",
        subject=_cut(f"schedule {schedule}: {state} {at}"),
        body=f"Schedule {schedule}, planned for {at}: {state}"
        + (f" ({reason})" if reason else "")
        + f"\n`orchestrator schedule show {schedule}` shows its times",
        schedule_row=schedule_row,
    )


def of_verdict(
    firing: int,
    schedule: str,
    planned_at: datetime.datetime,
    verdict: str,
    detail: Sequence[str],
    *,
    schedule_row: int,
    sweep_row: int | None = None,
    job_row: int | None = None,
) -> Notice:
    """Return what to tell of how that went which a schedule submitted; `detail`: sentences."""
    at = planned_at.isoformat(timespec="minutes")
    what = f"sweep @{sweep_row}" if sweep_row is not None else f"job @{job_row}"
    return Notice(
        key=f"verdict:{firing}",
        kind="regression" if verdict == "regression" else "verdict",
        subject=_cut(f"schedule {schedule} of {at}: {verdict}"),
        body="\n".join(
            [f"Schedule {schedule}, planned for {at}: {what} was judged: {verdict}", *detail]
        ),
        schedule_row=schedule_row,
        sweep_row=sweep_row,
        job_row=job_row,
    )


def message(notices: Sequence[Notice], channel: str, origin: str, at: datetime.datetime) -> Message:
    """Return one message of these notices to this channel; `origin` names our installation."""
    digest = hashlib.sha256("\n".join([origin, channel, *(one.key for one in notices)]).encode())
    told = [f"{one.subject}\n\n{one.body}" for one in notices[:IN_FULL]]
    if left := len(notices) - IN_FULL:
        if left > 0:
            told.append(f"and {left} more: `orchestrator notices list` shows all")
    if len(notices) == 1:
        subject, body = notices[0].subject, notices[0].body
    else:
        counts = collections.Counter(one.kind for one in notices)
        kinds = ", ".join(f"{n} {_WORDS[kind]}{_plural(n)}" for kind, n in counts.items())
        subject, body = f"{len(notices)} notices: {kinds}", "\n\n".join(told)
    return Message(
        id=f"{digest.hexdigest()[:24]}.{origin}@orchestrator.invalid",
        subject=subject,
        body=body,
        notices=tuple(notices),
        at=at,
    )


def retry_seconds(tries: int, key: str) -> float:
    """Return how long to wait after so many tries; of several senders each waits otherwise."""
    seconds = min(_FIRST_SECONDS * 2.0 ** min(tries - 1, 20), _LONGEST_SECONDS)
    draw = int.from_bytes(hashlib.sha256(f"{key}:{tries}".encode()).digest()[:4], "big") / 2**32
    return seconds * (0.8 + 0.4 * draw)


def _name(job: jobs.Job) -> str:
    return f"{job.job_id or f'@{job.row}'} {job.name}"


def _one(job: jobs.Job, cause: str) -> list[str]:
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    lines = [f"Job {_name(job)} (@{job.row}) ended: {job.state}{code}"]
    if job.started_at is not None and job.ended_at is not None:
        seconds = (job.ended_at - job.started_at).total_seconds()
        where = f" on {job.node_list}" if job.node_list else ""
        lines.append(f"It ran for {values.elapsed(seconds)}{where}")
    if cause or job.reason not in (None, "None"):
        lines.append(f"Cause: {cause}" if cause else f"Reason: {job.reason}")
    return lines


def _counts(ended: Sequence[jobs.Job]) -> str:
    counts = collections.Counter(str(job.state) for job in ended)
    return ", ".join(f"{n} {state}" for state, n in counts.most_common()) or "nothing submitted"


def _causes(ended: Sequence[jobs.Job]) -> list[str]:
    failed = [job for job in ended if is_failure(job)]
    counts = collections.Counter(job.cause or "cause unknown" for job in failed)
    some = ", ".join(f"@{job.row}" for job in failed[:10])
    told = ", ".join(f"{n} {cause}" for cause, n in counts.most_common())
    more = "" if len(failed) <= 10 else f" and {len(failed) - 10} more"
    return [f"Failed: {told} ({some}{more})"] if failed else []


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _cut(text: str) -> str:
    line = escaping.visible(text)
    return line if len(line) <= _SUBJECT_CHARACTERS else line[: _SUBJECT_CHARACTERS - 3] + "..."

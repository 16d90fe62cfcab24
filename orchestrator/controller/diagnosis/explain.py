"""explain: a job's papers, history and logs -> why it failed; stored once, when it has failed."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pwd
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator import diagnosis, errors, files, jobs, logs
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import pending as waiting
from orchestrator.controller.session import contexts, queries
from orchestrator.diagnosis import advice, pending
from orchestrator.slurm import states
from orchestrator.tracking import run_folder

#: Logs are read for so long in one refresh; what failed beside is left to the next one.
READING_SECONDS = 5.0
#: The logs of one job are read for so long when they are to be explained.
EXPLAIN_SECONDS = 20.0
_RULES_LIMIT_BYTES = 4 * 1024 * 1024


def explain(
    context: contexts.Context,
    job: jobs.Job,
    rules: diagnosis.Rules,
    *,
    attempt: int | None = None,
) -> diagnosis.Explanation:
    """Return why the job failed, or what it does; of its newest attempt where none is named.

    Raises NotFoundError where it has no such attempt.
    """
    if attempt is None and pending.waits(job):
        return waiting.explain(context, job)
    return diagnosis.diagnose(_facts_of(context, job, rules, attempt))


def rules_with(paths: Sequence[str]) -> diagnosis.Rules:
    """Return the rules that ship, behind those of the files; ConfigurationError tells mistakes."""
    rules = diagnosis.load_shipped()
    for path in reversed(paths):
        try:
            text = files.read_given(path, limit_bytes=_RULES_LIMIT_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            told = getattr(error, "strerror", None) or str(error)
            raise errors.NotFoundError(f"{path} cannot be read: {told}") from error
        rules = diagnosis.load_rules(text, path).before(rules)
    return rules


def _facts_of(
    context: contexts.Context, job: jobs.Job, rules: diagnosis.Rules, attempt: int | None
) -> diagnosis.Facts:
    """Return what is known of an attempt; none: the newest."""
    details = queries.details(context, job)
    past = attempt is not None and attempt != job.attempt
    if past:
        job = _as_of(job, details.attempts, attempt or 0)
    facts = _facts(job, details.attempts, details.events)
    told = _advice(details.submission) if job.state is jobs.JobState.COMPLETED else ()
    facts = dataclasses.replace(facts, past=past, advice=told)
    return _with_logs(facts, job, rules, context.deadline.within(EXPLAIN_SECONDS))[0]


def _facts(
    job: jobs.Job, attempts: Sequence[jobs.Attempt], events: Sequence[jobs.JobEvent]
) -> diagnosis.Facts:
    canceller = _canceller(job)
    return diagnosis.Facts(
        job=job,
        attempts=tuple(attempts),
        events=tuple(events),
        canceller=canceller,
        # Of no other end it matters, and the tasks of an array share a folder.
        began=_began(job) if canceller is not None and canceller.user_id == 0 else None,
    )


def log_facts(path: str, rules: diagnosis.Rules) -> diagnosis.Facts:
    """Return what a log from anywhere tells. Raises NotFoundError where it cannot be read."""
    scan = logs.Scan()
    reader = diagnosis.Reader(rules, path)
    for line in logs.scan(path, scan, deadline=deadlines.NEVER.within(EXPLAIN_SECONDS)):
        reader.feed(line.number, line.text)
    if scan.problem:
        raise errors.NotFoundError(f"{path}: {scan.problem}")
    return diagnosis.Facts(
        findings=reader.findings,
        last_line=reader.last,
        skipped_bytes=scan.skipped_bytes,
        uncounted_bytes=scan.uncounted_bytes,
    )


def store_causes(
    context: contexts.Context,
    job_rows: Sequence[int],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Store why the jobs with these rows failed, each once; returns of how many.

    What was changed by another process meanwhile is left to it, and what there is no time to read
    to the next refresh; the first job's logs count as far as they were read.
    """
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(rows=job_rows, limit=None))
        failed = [job for job in found if job.cause is None and is_failed(job)]
        attempts = work.attempts.of_jobs([job.row for job in failed])
        # Who cancelled a job stands in its history; of others it tells nothing.
        cancelled = [job.row for job in failed if job.state is jobs.JobState.CANCELLED]
        events = {row: tuple(work.events.of_job(row)) for row in cancelled}
    if not failed:
        return 0
    rules = diagnosis.load_shipped()
    own = deadlines.Deadline(clock=clock).within(READING_SECONDS)
    deadline = own.earlier(context.deadline)
    told: list[tuple[jobs.Job, jobs.JobEvent, dict[str, object]]] = []
    for place, job in enumerate(sorted(failed, key=lambda job: job.row)):
        if place and deadline.is_over:
            break
        facts = _facts(job, attempts.get(job.row, ()), events.get(job.row, ()))
        facts, is_cut = _with_logs(facts, job, rules, deadline)
        if is_cut and (place or context.deadline.is_over):
            break
        explanation = diagnosis.diagnose(facts)
        if explanation.cause is not None:
            changes: dict[str, object] = {"cause": str(explanation.cause)}
            told.append((job, _event(job, explanation, context.clock.now()), changes))
    with context.store.writing() as work:
        stored = work.jobs.change_many(
            [(job.row, changes, job.version) for job, _, changes in told]
        )
        work.events.add_many((job.row, event) for job, event, _ in told if job.row in stored)
    return len(stored)


def _event(
    job: jobs.Job, explanation: diagnosis.Explanation, now: datetime.datetime
) -> jobs.JobEvent:
    evidence = explanation.evidence
    return jobs.JobEvent(
        at=now,
        kind="cause",
        attempt=job.attempt,
        source=str(evidence[0].source if evidence else diagnosis.Source.OURS),
        detail=f"{explanation.cause}: {explanation.summary}",
    )


def is_failed(job: jobs.Job) -> bool:
    """Tell whether the job has ended, and not well, and nothing more is expected of Slurm."""
    return job.ended and job.settled and job.state is not jobs.JobState.COMPLETED


def _with_logs(
    facts: diagnosis.Facts,
    job: jobs.Job,
    rules: diagnosis.Rules,
    deadline: deadlines.Deadline,
) -> tuple[diagnosis.Facts, bool]:
    """Return the facts with those of the logs, and whether the deadline came before their end."""
    findings: list[diagnosis.Finding] = []
    last: diagnosis.Evidence | None = None
    skipped, uncounted, written, is_cut = 0, 0, 0.0, False
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    for path in dict.fromkeys((job.stdout_path, job.stderr_path)):
        if path is None:
            continue
        scan = logs.Scan()
        reader = diagnosis.Reader(rules, path)
        # Only our own scripts write banners, and to stdout.
        own = job.tracked_name is None and path == job.stdout_path
        for line in logs.scan(
            path,
            scan,
            banner=banner if own else None,
            attempt=job.attempt if own else None,
            deadline=deadline,
        ):
            reader.feed(line.number, line.text)
        findings += [
            dataclasses.replace(finding, order=len(findings) + finding.order)
            for finding in reader.findings
        ]
        last = reader.last or last
        skipped += scan.skipped_bytes
        uncounted += scan.uncounted_bytes
        is_cut = is_cut or scan.is_cut
        written = max(written, scan.written_at or 0.0)
    found = dataclasses.replace(
        facts,
        findings=tuple(findings),
        last_line=last,
        written_at=files.time_of(written) if written else None,
        skipped_bytes=skipped,
        uncounted_bytes=uncounted,
    )
    return found, is_cut


def _advice(submission: jobs.Submission) -> tuple[str, ...]:
    from orchestrator import specs
    from orchestrator.specs import ranks

    try:
        spec = specs.from_json(submission.spec)
    except errors.SpecError:
        return ()
    ours = (spec.launch.module or "").startswith("trainers.")
    return advice.of_ranks(spec.args, ranks.world_size(spec), ours=ours)


def _canceller(job: jobs.Job) -> diagnosis.Canceller | None:
    """Return who cancelled the job: sacct writes "CANCELLED by 2001"."""
    user_id = states.cancelled_by(job.raw_state or "")
    if user_id is None:
        return None
    try:
        name = pwd.getpwuid(user_id).pw_name
    except (KeyError, OverflowError):
        name = f"the user with the number {user_id}"
    return diagnosis.Canceller(user_id=user_id, name=name, is_me=user_id == os.getuid())


def _began(job: jobs.Job) -> bool | None:
    """Tell whether the newest attempt's script has begun; None of scripts that are not ours."""
    folder = Path(job.run_dir)
    if job.tracked_name is not None or not folder.is_dir():
        return None
    attempts = run_folder.RunFolder(folder).attempts()
    return job.attempt in attempts.get(job.array_task_id or 0, [])


def _as_of(job: jobs.Job, attempts: Sequence[jobs.Attempt], number: int) -> jobs.Job:
    for attempt in attempts:
        if attempt.number == number:
            fields = dataclasses.asdict(attempt)
            fields["attempt"] = fields.pop("number")
            return dataclasses.replace(job, **fields)
    known = ", ".join(str(attempt.number) for attempt in attempts) or "none"
    raise errors.NotFoundError(
        f"job {job.job_id or f'@{job.row}'} has no attempt {number}; there are: {known}"
    )

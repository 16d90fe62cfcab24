"""Explain a job from its records, history and logs; store the causes of failures."""

from __future__ import annotations

import dataclasses
import os
import pwd
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from orchestrator import errors, files, jobs, logs
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import pending_jobs as slurm_answers
from orchestrator.controller.session import contexts, queries
from orchestrator.diagnosis import explanations, log_reader, log_rules, pending_jobs
from orchestrator.diagnosis.records import Canceller, Explanation, Facts, Source
from orchestrator.slurm import fields
from orchestrator.tracking import run_folder

#: Time for reading logs in one refresh. The next refresh explains the remaining jobs.
READING_SECONDS = 5.0
#: Time for reading the logs of one job.
EXPLAIN_SECONDS = 20.0
_RULES_LIMIT_BYTES = 4 * 1024 * 1024


def explain(
    context: contexts.Context,
    job: jobs.Job,
    rules: log_rules.Rules,
    *,
    attempt: int | None = None,
) -> Explanation:
    """Return why the job failed or is pending; default: its newest attempt.

    Raises NotFoundError if the job has no such attempt.
    """
    if attempt is None and pending_jobs.is_pending(job):
        return slurm_answers.explain(context, job)
    details = queries.details(context, job)
    is_earlier = attempt is not None and attempt != job.attempt
    if attempt is not None and is_earlier:
        job = _as_of_attempt(job, details.attempts, attempt)
    facts = _facts(job, details.attempts, details.events)
    facts = dataclasses.replace(facts, is_earlier_attempt=is_earlier)
    if job.state is jobs.JobState.COMPLETED:
        facts = dataclasses.replace(facts, advice=_advice(details.submission))
    deadline = context.deadline.within(EXPLAIN_SECONDS)
    return explanations.explain(_with_logs(facts, _log_paths(job), rules, deadline)[0])


def rules_with(paths: Sequence[str]) -> log_rules.Rules:
    """Return the rules of these files, followed by the shipped ones.

    Raises NotFoundError or ConfigurationError.
    """
    rules = log_rules.load_shipped()
    for path in reversed(paths):
        try:
            content = files.read_bytes(path, limit_bytes=_RULES_LIMIT_BYTES, is_given=True)
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise errors.NotFoundError(f"{path} cannot be read: {reason}") from error
        rules = log_rules.load_rules(text, path).before(rules)
    return rules


def explain_log(path: str, rules: log_rules.Rules) -> Explanation:
    """Return what any log file shows. Raises NotFoundError if it cannot be read."""
    deadline = deadlines.NEVER.within(EXPLAIN_SECONDS)
    facts, (scan,) = _with_logs(Facts(), [path], rules, deadline)
    if scan.problem:
        raise errors.NotFoundError(f"{path}: {scan.problem}")
    return explanations.explain(facts)


def is_failed(job: jobs.Job) -> bool:
    """Return whether the job has failed, and Slurm has reported everything about its end."""
    return job.ended and job.settled and job.state is not jobs.JobState.COMPLETED


def store_causes(
    context: contexts.Context,
    job_rows: Sequence[int],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Store the cause of each failed job among these, once; return the number of stored causes.

    Jobs that another process changes meanwhile, and jobs whose logs there is no time to read, are
    left to the next refresh. The first job is always explained, as far as its logs could be read.
    """
    with context.store.reading() as work:
        stored_jobs = work.jobs.by_row(job_rows).values()
        failed = [job for job in stored_jobs if job.cause is None and is_failed(job)]
        attempts = work.attempts.of_jobs([job.row for job in failed])
        # The history shows who cancelled a job, and is not needed for other states.
        cancelled = [job.row for job in failed if job.state is jobs.JobState.CANCELLED]
        events = {row: tuple(work.events.of_job(row)) for row in cancelled}
    if not failed:
        return 0
    rules = log_rules.load_shipped()
    deadline = deadlines.Deadline(clock=clock).within(READING_SECONDS).earlier(context.deadline)
    causes: list[tuple[jobs.Job, str, jobs.JobEvent]] = []
    for index, job in enumerate(sorted(failed, key=lambda job: job.row)):
        if index and deadline.is_over:
            break
        facts = _facts(job, attempts.get(job.row, ()), events.get(job.row, ()))
        facts, scans = _with_logs(facts, _log_paths(job), rules, deadline)
        if any(scan.is_cut for scan in scans) and (index or context.deadline.is_over):
            break
        explanation = explanations.explain(facts)
        if explanation.cause is None:
            continue
        source = explanation.evidence[0].source if explanation.evidence else Source.OURS
        event = jobs.JobEvent(
            at=context.clock.now(),
            kind="cause",
            attempt=job.attempt,
            source=str(source),
            detail=f"{explanation.cause}: {explanation.summary}",
        )
        causes.append((job, str(explanation.cause), event))
    with context.store.writing() as work:
        stored = work.jobs.change_many(
            [(job.row, {"cause": cause}, job.version) for job, cause, _ in causes]
        )
        work.events.add_many((job.row, event) for job, _, event in causes if job.row in stored)
    return len(stored)


def _facts(
    job: jobs.Job, attempts: Sequence[jobs.Attempt], events: Sequence[jobs.JobEvent]
) -> Facts:
    canceller = _canceller(job)
    is_root = canceller is not None and canceller.user_id == 0
    return Facts(
        job=job,
        attempts=tuple(attempts),
        events=tuple(events),
        canceller=canceller,
        script_started=_script_started(job) if is_root else None,
    )


def _log_paths(job: jobs.Job) -> Iterable[str]:
    return dict.fromkeys(path for path in (job.stdout_path, job.stderr_path) if path)


def _with_logs(
    facts: Facts, paths: Iterable[str], rules: log_rules.Rules, deadline: deadlines.Deadline
) -> tuple[Facts, list[logs.Scan]]:
    """Return the facts with those of the logs, and how far each log was read."""
    job, scans = facts.job, []
    for path in paths:
        scan = logs.Scan()
        reader = log_reader.LogReader(rules, path)
        banner = None
        # Only our own scripts print banners, and only to stdout.
        if job is not None and job.tracked_name is None and path == job.stdout_path:
            job_id, task = job.raw_job_id or job.job_id or "", job.array_task_id or 0
            banner = logs.banner_pattern(job_id=job_id, task=task, name=job.name)
        attempt = job.attempt if job is not None and banner is not None else None
        for line in logs.scan(path, scan, banner=banner, attempt=attempt, deadline=deadline):
            reader.feed(line.number, line.text)
        first = len(facts.findings)
        findings = [
            dataclasses.replace(finding, order=first + finding.order) for finding in reader.findings
        ]
        facts = dataclasses.replace(
            facts,
            findings=(*facts.findings, *findings),
            last_line=reader.last_line or facts.last_line,
            skipped_bytes=facts.skipped_bytes + scan.skipped_bytes,
            uncounted_bytes=facts.uncounted_bytes + scan.uncounted_bytes,
        )
        scans.append(scan)
    if written := max((scan.written_at or 0.0 for scan in scans), default=0.0):
        facts = dataclasses.replace(facts, written_at=files.time_of(written))
    return facts, scans


def _advice(submission: jobs.Submission) -> tuple[str, ...]:
    from orchestrator import specs
    from orchestrator.specs import ranks

    try:
        spec = specs.from_json(submission.spec)
    except errors.SpecError:
        return ()
    is_included = (spec.launch.module or "").startswith("trainers.")
    world_size = ranks.world_size(spec)
    return explanations.advice_for_ranks(spec.args, world_size, is_included_trainer=is_included)


def _canceller(job: jobs.Job) -> Canceller | None:
    user_id = fields.cancelled_by(job.raw_state or "")
    if user_id is None:
        return None
    try:
        name = pwd.getpwuid(user_id).pw_name
    except (KeyError, OverflowError):
        name = f"user {user_id}"
    return Canceller(user_id=user_id, name=name, is_me=user_id == os.getuid())


def _script_started(job: jobs.Job) -> bool | None:
    """Return whether the job script of the newest attempt started; None if it is not ours."""
    folder = Path(job.run_dir)
    if job.tracked_name is not None or not folder.is_dir():
        return None
    attempts = run_folder.RunFolder(folder).attempts()
    return job.attempt in attempts.get(job.array_task_id or 0, [])


def _as_of_attempt(job: jobs.Job, attempts: Sequence[jobs.Attempt], number: int) -> jobs.Job:
    for attempt in attempts:
        if attempt.number == number:
            fields = dataclasses.asdict(attempt)
            fields["attempt"] = fields.pop("number")
            return dataclasses.replace(job, **fields)
    known = ", ".join(str(attempt.number) for attempt in attempts) or "none"
    raise errors.NotFoundError(
        f"job {job.job_id or f'@{job.row}'} has no attempt {number}; its attempts: {known}"
    )

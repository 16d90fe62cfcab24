"""Explain a job from its records, history and logs; store the causes of failures."""

from __future__ import annotations

import dataclasses
import functools
import os
import pwd
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator import errors, files, jobs, nodes
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import flight_dumps, rank_files
from orchestrator.controller.nodes import record
from orchestrator.controller.prune import marks
from orchestrator.controller.session import clusters, contexts, queries
from orchestrator.diagnosis import (
    causes,
    explanations,
    final_states,
    log_reader,
    log_rules,
    main_finding,
)
from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.diagnosis.pending import jobs as pending_jobs
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.diagnosis.records import Explanation, JobFacts, Source
from orchestrator.files import run_folder
from orchestrator.logs import head_and_tail
from orchestrator.logs.lines import BANNER_START
from orchestrator.slurm import fields, scontrol, states

#: Time for reading logs in one refresh. The next refresh explains the remaining jobs.
READING_SECONDS = 5.0
#: Time for reading the logs of one job.
EXPLAIN_SECONDS = 20.0
_RULES_LIMIT_BYTES = 4 * 1024 * 1024
_LIMIT_REASON = re.compile(r"(?:QOS|Assoc)(?:Grp|Max|Min)|Max\w+PerAccount")
_UNAVAILABLE_NODES = re.compile(r"UnavailableNodes:(\S+)")


def explain(
    context: contexts.Context,
    job: jobs.Job,
    rules: log_rules.Rules,
    *,
    attempt: int | None = None,
    may_ask: bool = True,
) -> Explanation:
    """Return why the job failed or is pending; default: its newest attempt.

    may_ask: ask Slurm why it is pending; otherwise its stored reason is used.

    Raises NotFoundError if the job has no such attempt.
    """
    if attempt is None and pending_jobs.is_pending(job):
        if not may_ask:
            return pending_jobs.explain(job, pending_facts.PendingFacts(), context.clock.now())
        return _explain_pending(context, job)
    details = queries.details(context, job)
    is_earlier = attempt is not None and attempt != job.attempt
    is_known = job.cause is not None and job.cause in causes.known()
    if not is_earlier and is_known and marks.note(context, job):
        return _stored_explanation(context, job, str(job.cause))
    if attempt is not None and is_earlier:
        job = _as_of_attempt(job, details.attempts, attempt)
    facts = _facts(job, details.attempts, details.events)
    facts = dataclasses.replace(facts, is_earlier_attempt=is_earlier)
    deadline = context.deadline.within(EXPLAIN_SECONDS)
    explanation = explanations.explain(_with_logs(facts, _log_paths(job), rules, deadline)[0])
    if job.state is jobs.JobState.COMPLETED:
        return dataclasses.replace(explanation, cures=_advice(details.submission))
    if explanation.cause in nodes.NODE_CAUSES | nodes.POSSIBLE_CAUSES:
        cures = (*_without(context, job), *explanation.cures)
        return dataclasses.replace(explanation, cures=cures)
    return explanation


def _without(context: contexts.Context, job: jobs.Job) -> tuple[str, ...]:
    """Return how to avoid the nodes of a failed job that should be avoided."""
    if job.node_list is None or job.scheduler == "local":
        return ()
    hosts = fields.expand_hosts(job.node_list)
    bad = [
        node
        for node in record.read(context)
        if node.is_excluded and node.cluster == job.cluster and node.name in hosts
    ]
    if not bad:
        return ()
    why = ", ".join(f"{node.name}: {node.reason}" for node in bad)
    names = ",".join(node.name for node in bad)
    return (f"avoid {names}: --exclude {names} (orchestrator nodes; {why})",)


def to_explain(tasks: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the tasks of an array that failed, or the first one; a job alone as it is."""
    return [task for task in tasks if is_failed(task)] or [*tasks[:1]]


def _stored_explanation(
    context: contexts.Context, job: jobs.Job, cause: causes.Cause
) -> Explanation:
    """Return what was found in the logs of a job while they existed."""
    with context.store.reading() as work:
        sentence = work.events.cause(job.row, job.attempt).partition(": ")[2]
    info = causes.known()[cause]
    return Explanation(
        cause=cause,
        summary=sentence or info.title,
        evidence=(final_states.evidence(job),),
        cures=info.cures,
    )


def _explain_pending(context: contexts.Context, job: jobs.Job) -> Explanation:
    """Return why a job is pending; from its last known reason if Slurm does not answer."""
    slurm_context = context.with_scheduler("slurm")
    facts = clusters.known_facts(slurm_context)
    answers = pending_facts.PendingFacts()
    if facts is not None and facts.cluster == job.cluster and job.job_id is not None:
        try:
            with context.reporter.activity("Asking Slurm why the job is pending (scontrol)"):
                answers = _ask(slurm_context, job, job.job_id)
        except errors.SlurmError as error:
            answers = pending_facts.PendingFacts(error=str(error))
    return pending_jobs.explain(job, answers, context.clock.now())


def _ask(context: contexts.Context, job: jobs.Job, job_id: str) -> pending_facts.PendingFacts:
    """Ask Slurm at most three questions: what the numbers behind the job's reason need."""
    slurm = context.slurm
    shown = slurm.show_job(job_id)
    if shown is None:
        return pending_facts.PendingFacts()
    request = scontrol.parse_request(shown)
    reason, answers = request.reason, pending_facts.PendingFacts(request=request)
    numbers = pending_reasons.meaning(reason).numbers
    try:
        if "{reservation}" in numbers and request.reservation:
            reservation = slurm.reservation(request.reservation)
            return dataclasses.replace(answers, reservation=reservation)
        if "{unavailable_nodes}" in numbers:
            named = _UNAVAILABLE_NODES.search(reason)
            nodes = named[1] if named else request.node_list
            away = tuple(slurm.unavailable_nodes(nodes)) if nodes else ()
            return dataclasses.replace(answers, unavailable_nodes=away)
        is_limit, is_queue = _LIMIT_REASON.match(reason), "{ahead}" in numbers
        if not (is_limit or "{partition_" in numbers or "{too_much}" in numbers):
            return answers
        # If a job names several partitions, the numbers of one of them would mislead.
        if request.partition is None or "," in request.partition:
            return answers
        partition = slurm.partition(request.partition)
        answers = dataclasses.replace(answers, partition=partition)
        if is_limit and request.account:
            qos = [name for name in (request.qos, partition.qos if partition else None) if name]
            limits = slurm.limits_of(shown.get("UserId", ""), request.account, qos)
            return dataclasses.replace(answers, limits=tuple(limits))
        if is_queue and request.priority is not None:
            raw_job_id = job.raw_job_id or job_id
            before = slurm.jobs_before(raw_job_id, request.partition, request.priority)
            return dataclasses.replace(answers, before=before)
        return answers
    except errors.SlurmError as error:
        return dataclasses.replace(answers, error=str(error))


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
    facts, (scan,) = _with_logs(JobFacts(), [path], rules, deadline)
    if scan.problem:
        raise errors.NotFoundError(f"{path}: {scan.problem}")
    return explanations.explain(facts)


def is_failed(job: jobs.Job) -> bool:
    """Return whether the job has failed, and Slurm has reported everything about its end."""
    return job.ended and job.settled and job.state is not jobs.JobState.COMPLETED


def store_causes(context: contexts.Context, job_rows: Sequence[int]) -> int:
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
    deadline = context.deadline.within(READING_SECONDS)
    found: list[tuple[jobs.Job, str, jobs.JobEvent]] = []
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
        detail = f"{explanation.cause}: {explanation.summary}"
        event = context.event("cause", detail, source=str(source), attempt=job.attempt)
        found.append((job, str(explanation.cause), event))
    with context.store.writing() as work:
        stored = work.jobs.change_many(
            [(job.row, {"cause": cause}, job.version) for job, cause, _ in found]
        )
        work.events.add_many((job.row, event) for job, _, event in found if job.row in stored)
    return len(stored)


def _facts(
    job: jobs.Job, attempts: Sequence[jobs.Attempt], events: Sequence[jobs.JobEvent]
) -> JobFacts:
    user_id = states.cancelled_by(job.raw_state or "")
    return JobFacts(
        job=job,
        attempts=tuple(attempts),
        events=tuple(events),
        user=_user_name(os.getuid()),
        cancelled_by=None if user_id is None else _user_name(user_id),
        script_started=_script_started(job) if user_id == 0 else None,
    )


def _log_paths(job: jobs.Job) -> Iterable[str]:
    return dict.fromkeys(path for path in (job.stdout_path, job.stderr_path) if path)


def _with_logs(
    facts: JobFacts, paths: Iterable[str], rules: log_rules.Rules, deadline: deadlines.Deadline
) -> tuple[JobFacts, list[head_and_tail.Scan]]:
    """Return the facts with those of the logs, and how far each log was read."""
    job, scans = facts.job, []
    error_files: dict[str, int | None] = {}
    for path in paths:
        scan = head_and_tail.Scan()
        reader = log_reader.LogReader(rules, path)
        # Only our own scripts print banners.
        of_job = job if job and job.tracked_name is None else None
        for line in head_and_tail.scan(path, scan, job=of_job, deadline=deadline):
            reader.feed(line.number, line.text)
        printed = [line for line in reader.last_lines if not line.text.startswith(BANNER_START)]
        facts = dataclasses.replace(
            facts,
            findings=(*facts.findings, *reader.finish()),
            last_lines=tuple(printed) or facts.last_lines,
            skipped_bytes=facts.skipped_bytes + scan.skipped_bytes,
            uncounted_bytes=facts.uncounted_bytes + scan.uncounted_bytes,
        )
        error_files |= reader.error_files
        scans.append(scan)
    if (job is None or is_failed(job)) and main_finding.needs_evidence(facts.findings):
        share = deadline.share(2)
        of_ranks = rank_files.findings(job, error_files, rules, share)
        facts = dataclasses.replace(facts, findings=(*facts.findings, *of_ranks))
    if job is not None and is_failed(job):
        dumped = flight_dumps.findings(job, facts.findings, deadline)
        facts = dataclasses.replace(facts, findings=(*dumped, *facts.findings))
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


@functools.cache
def _user_name(user_id: int) -> str:
    try:
        return "root" if user_id == 0 else pwd.getpwuid(user_id).pw_name
    except (KeyError, OverflowError):
        return f"user {user_id}"


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

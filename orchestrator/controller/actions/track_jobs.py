"""`track`: a job that was submitted without orchestrator is followed from now on.

It gets a row, a token and a run folder. The token is not in its Slurm name, so refreshes recognize
the job by its ID and by what a new job with the same ID lacks (identity).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import orchestrator
from db import unit_of_work
from orchestrator import errors, files, jobs, patterns, specs, tracking
from orchestrator.controller.metrics import job_patterns
from orchestrator.controller.refresh import identity, refresh, slurm_queries
from orchestrator.controller.session import clusters, contexts
from orchestrator.files import run_folder
from orchestrator.toml import values

_JOB_ID = re.compile(r"([0-9]{1,10})(?:_[0-9]{1,10})?", re.ASCII)
#: sacct requires a start time; slurmdbd keeps less than this.
_LONG_AGO = datetime.timedelta(days=10 * 365)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    #: None: its name in Slurm
    name: str | None = None
    labels: tuple[str, ...] = ()
    #: names of patterns; empty: all
    patterns: tuple[str, ...] = ()
    #: path of its log if Slurm does not report it; `%j` and the like are replaced
    log: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SlurmJob:
    #: newest row of it, or of each array task
    rows: tuple[tracking.Observation, ...]
    #: its first SubmitTime: a requeue changes it
    submitted_at: datetime.datetime
    #: fields as scontrol or sacct name them: Command, WorkDir, SubmitLine, StdOut, StdErr
    record: Mapping[str, str]

    def known(self, work: unit_of_work.UnitOfWork, cluster: str) -> list[jobs.Job]:
        """Return the jobs that are stored already, submitted by orchestrator or tracked before."""
        by_id = {row.job_id: row for row in self.rows}
        stored = work.jobs.find(jobs.JobQuery(job_ids=tuple(by_id), limit=None))
        return [
            job
            for job in reversed(stored)
            if job.cluster == cluster and (row := by_id.get(job.job_id or ""))
            if (
                identity.has_token(job, row)
                if job.tracked_name is None
                else job.created_at == self.submitted_at
            )
        ]


def track(context: contexts.Context, job_id: str, options: Options) -> tuple[list[jobs.Job], bool]:
    """Follow a job from now on; an array's ID means all its tasks.

    Return the job or the tasks, and whether they were stored before. Tasks that are tracked one by
    one become one array. Raises NotFoundError if Slurm shows no such job, and ConflictError for a
    job of another user, or options other than a log for a known job.
    """
    if _JOB_ID.fullmatch(job_id) is None:
        raise errors.NotFoundError(f"{job_id!r} is not a job ID of Slurm, such as 123 or 123_4")
    if options.patterns:
        patterns.select(job_patterns.configured(context.configuration), options.patterns)
    facts = clusters.facts(context)
    slurm_job = _find(context, facts, job_id)
    with context.store.reading() as work:
        known = slurm_job.known(work, facts.cluster)
    already = len(known) == len(slurm_job.rows)
    tracked = [job for job in known if already or job.tracked_name is not None]
    if tracked and options != Options():
        _set_log(context, job_id, tracked, options)
    if not already:
        known = _store(context, facts.cluster, slurm_job, options)
        refresh.refresh(context, floor_seconds=0)
    with context.store.reading() as work:
        by_row = work.jobs.by_row([job.row for job in known])
    return [by_row[row] for row in sorted(by_row)], already


def name_misfit(name: str) -> str:
    """Return why a job cannot have this name; "" if it can."""
    if _JOB_ID.fullmatch(name) or name.startswith("local-"):
        return "reads as a job ID: put a letter before it"
    return values.form_error("name", name)


def _find(context: contexts.Context, facts: clusters.Facts, job_id: str) -> _SlurmJob:
    number = job_id.partition("_")[0]

    def keep(name: str, row_id: str, stdout: str) -> bool:
        return row_id.partition("_")[0] == number

    live = [row for row in context.slurm.squeue(keep) if job_id in (row.job_id, row.array_job_id)]
    record = context.slurm.show_job(job_id)
    if record is not None:
        owner, _, uid = record.get("UserId", "").partition("(")
        _require_own(job_id, owner, uid.rstrip(")"))
    accounts = _accounts(context, facts, job_id, lenient=bool(live)) if facts.accounting else {}
    if record is None and accounts:
        record = context.slurm.job_owner(job_id, context.clock.now() - _LONG_AGO)
        _require_own(job_id, record.get("User", ""), record.get("UID", ""))
    submitted_at = _first_submit_time(live, accounts)
    if submitted_at is None:
        programs = "squeue and sacct show" if facts.accounting else "squeue shows"
        raise errors.NotFoundError(
            f"{programs} no job {job_id} of yours; `orchestrator track` takes a job ID that "
            "`squeue --me` prints"
        )
    rows = {row.job_id: row for row in live}
    record = dict(record or {})
    for row_id, of_id in accounts.items():
        later = [row for row in of_id if (row.submitted_at or submitted_at) >= submitted_at]
        attempts = identity.attempts(later)
        if attempts and attempts[0].submitted_at == submitted_at:
            rows.setdefault(row_id, attempts[-1])
            if attempts[0].submit_line:
                record.setdefault("SubmitLine", attempts[0].submit_line)
    ordered = sorted(rows.values(), key=lambda row: row.array_task_id or 0)
    return _SlurmJob(rows=tuple(ordered), submitted_at=submitted_at, record=record)


def _accounts(
    context: contexts.Context, facts: clusters.Facts, job_id: str, *, lenient: bool
) -> dict[str, list[tracking.Observation]]:
    """Return the rows of sacct by job ID, oldest first. `lenient`: a failing sacct is a warning."""
    try:
        rows = context.slurm.sacct([job_id], context.clock.now() - _LONG_AGO)
    except errors.SlurmError as exc:
        if not lenient:
            raise
        context.reporter.warn(f"The accounting data of {job_id} is missing: {exc}")
        return {}
    accounts: dict[str, list[tracking.Observation]] = {}
    with_gpus = slurm_queries.with_gpus(rows, facts)
    for row in sorted(with_gpus, key=lambda row: row.row_number):
        is_resized = row.state is jobs.JobState.RESIZING
        if job_id in (row.job_id, row.array_job_id) and not is_resized:
            accounts.setdefault(row.job_id, []).append(row)
    return accounts


def _first_submit_time(
    live: Sequence[tracking.Observation], accounts: Mapping[str, Sequence[tracking.Observation]]
) -> datetime.datetime | None:
    """Return when the job that has this ID now was first submitted."""
    if live:
        oldest = min(live, key=lambda row: row.restart_count or 0)
        restarts, until = oldest.restart_count or 0, oldest.submitted_at
        times = [row.submitted_at for row in accounts.get(oldest.job_id, ())]
        before = [at for at in times if at is not None and until is not None and at <= until]
        return before[-restarts - 1 :][0] if restarts and before else until
    starts = []
    for rows in accounts.values():
        while rows:
            # Several jobs may have had the ID; the last one is meant.
            attempts = identity.attempts(rows)
            starts.append(attempts[0].submitted_at)
            rows = rows[len(attempts) :]
    return max((start for start in starts if start is not None), default=None)


def _require_own(job_id: str, owner: str, uid: str) -> None:
    if uid.isdecimal() and int(uid) != os.getuid():
        raise errors.ConflictError(
            f"job {job_id} belongs to {owner}: only your own jobs can be tracked"
        )


def _set_log(
    context: contexts.Context, job_id: str, known: Sequence[jobs.Job], options: Options
) -> None:
    is_ours = any(job.tracked_name is None for job in known)
    if is_ours or dataclasses.replace(options, log=None) != Options():
        why = "it was submitted with orchestrator" if is_ours else "only --log can be changed"
        raise errors.ConflictError(
            f"{job_id} is already tracked as @{known[0].row} ({known[0].name}): {why}"
        )
    with context.store.writing() as work:
        for job in known:
            path = _log_path(context, options, job, job.tracked_name or "")
            if path is not None:
                work.jobs.change(job.row, {"stdout_path": path})


def _log_path(
    context: contexts.Context, options: Options, job: jobs.Job | tracking.Observation, name: str
) -> str | None:
    """Return the path of --log for one job; None if a part of it is not known yet."""
    pattern, job_id = options.log or "", job.job_id or ""
    path = run_folder.expand(pattern, job_id=job_id, raw_job_id=job.raw_job_id, name=name)
    return None if path is None else str(context.folder / path)


def _store(
    context: contexts.Context, cluster: str, slurm_job: _SlurmJob, options: Options
) -> list[jobs.Job]:
    fitting = values.fitting_name(slurm_job.rows[0].name)
    name = options.name or ("tracked" if name_misfit(fitting) else fitting)
    metrics = jobs.Metrics(patterns=options.patterns)
    spec = specs.to_json(jobs.JobSpec(name=name, labels=options.labels, metrics=metrics))
    provenance = _provenance(context, slurm_job)
    script = ""
    # An allocation of salloc has no script, and slurmctld may have forgotten the job.
    with contextlib.suppress(errors.SlurmError):
        first_id = slurm_job.rows[0].job_id.partition("_")[0]
        script = context.slurm.batch_script(first_id) or ""
    with context.store.reading() as work:
        token = run_folder.new_token(work.settings.installation_id())
    folder = run_folder.create(
        context.configuration.runs_dir,
        name,
        token,
        {"script.sbatch": script},
        copies={"spec.json": spec, "provenance.json": provenance},
        shared_folders=context.configuration.shared_folders,
    )
    submission = jobs.Submission(
        token=token,
        cluster=cluster,
        scheduler="slurm",
        name=name,
        script=script,
        spec=spec,
        run_dir=str(folder.path),
        provenance=provenance,
        created_at=slurm_job.submitted_at,
    )
    try:
        with context.store.writing(durable=True) as work:
            known = slurm_job.known(work, cluster)
            # The tasks of an array belong to one submission, also if tracked one by one.
            sibling = next((job for job in known if job.tracked_name is not None), None)
            known_ids = {job.job_id for job in known}
            rows = [row for row in slurm_job.rows if row.job_id not in known_ids]
            added = _add_jobs(work, submission, rows, options, sibling) if rows else []
            new = [(job.row, row) for job, row in zip(added, rows, strict=True)]
            record = slurm_job.record
            work.jobs.change_many(
                [(number, _fields(context, row, record, options), None) for number, row in new]
            )
            work.events.add_many((number, _event(context, row)) for number, row in new)
    except errors.OrchestratorError:
        run_folder.remove(folder)
        raise
    if not added or sibling is not None:
        # Another process was faster, or the tasks share the folder of their array.
        run_folder.remove(folder)
    return [*known, *added]


def _add_jobs(
    work: unit_of_work.UnitOfWork,
    submission: jobs.Submission,
    rows: Sequence[tracking.Observation],
    options: Options,
    sibling: jobs.Job | None,
) -> list[jobs.Job]:
    """Return new jobs, in a submission of their own or in that of another task of their array."""
    tasks = [row.array_task_id for row in rows if row.array_task_id is not None]
    if sibling is None:
        labels = options.labels
        return work.jobs.add_submission(submission, array_tasks=tasks or None, labels=labels)
    state = jobs.JobState.SUBMITTING
    return work.jobs.add_tasks(sibling.token, tasks, state=state, labels=sibling.labels)


def _restarts(row: tracking.Observation) -> int:
    return row.row_number if row.restart_count is None else row.restart_count


def _event(context: contexts.Context, row: tracking.Observation) -> jobs.JobEvent:
    return jobs.JobEvent(
        at=context.clock.now(),
        kind="track",
        attempt=_restarts(row),
        state=row.state,
        raw_state=row.raw_state,
        source=row.source,
        detail=f"tracked from now on; {row.state} in Slurm under the name {row.name}",
    )


def _fields(
    context: contexts.Context,
    row: tracking.Observation,
    record: Mapping[str, str],
    options: Options,
) -> dict[str, object]:
    """Return what is known about a job; its state is stored now, the rest by the next refresh."""
    names = ("job_id", "raw_job_id", "array_job_id", "state", "raw_state", "submitted_at")
    fields: dict[str, object] = {name: getattr(row, name) for name in names}
    fields |= {"tracked_name": row.name, "attempt": _restarts(row), "restart_count": _restarts(row)}
    if options.log is not None:
        return {**fields, "stdout_path": _log_path(context, options, row, row.name)}
    # The record of an array is that of one of its tasks.
    of_job = {} if row.array_task_id is not None else record
    stdout, stderr = of_job.get("StdOut") or row.stdout_path, of_job.get("StdErr")
    if not stdout and record.get("WorkDir"):
        # The default of sbatch (man sbatch); Slurm no longer knows whether the job had another.
        default = Path(record["WorkDir"], f"slurm-{row.job_id}.out")
        stdout = str(default) if default.is_file() else None
    paths = {"stdout_path": stdout, "stderr_path": stderr if stderr != stdout else None}
    return {**fields, **paths}


def _provenance(context: contexts.Context, slurm_job: _SlurmJob) -> str:
    """Return the provenance of a job that was submitted without orchestrator, as JSON."""
    line = slurm_job.record.get("SubmitLine")
    return json.dumps(
        {
            "orchestrator_version": orchestrator.__version__,
            "spec": f"tracked; submitted by hand{f': {line}' if line else ''}",
            "template": "",
            "template_sha256": "",
            "host": socket.gethostname(),
            "user": files.user_name(),
            "folder": slurm_job.record.get("WorkDir") or str(context.folder),
            "git_commit": None,
            "git_dirty": None,
            "git_diff": None,
            "slurm": {
                "JobName": slurm_job.rows[0].name,
                "SubmitLine": line,
                **{name: slurm_job.record.get(name) for name in identity.CONSTANT_FIELDS},
            },
        },
        indent=1,
    )

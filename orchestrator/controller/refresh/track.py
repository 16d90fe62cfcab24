"""track: a job that was submitted by hand is followed from now on, as one of ours.

It gets a row, a token and a run folder; the token is not in Slurm's name, so refreshes know the
job by its ID and by what a reused ID lacks (identity).
"""

from __future__ import annotations

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
from orchestrator import errors, jobs, patterns, specs, tracking
from orchestrator.controller.metrics import job_patterns
from orchestrator.controller.refresh import evidence, identity, refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.files import users
from orchestrator.toml import values
from orchestrator.tracking import run_folder

_JOB_ID = re.compile(r"([0-9]{1,10})(?:_[0-9]{1,10})?", re.ASCII)
#: sacct needs a beginning; slurmdbd keeps less than this.
_LONG_AGO = datetime.timedelta(days=10 * 365)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a tracked job is to be called and read."""

    #: none: its name in Slurm
    name: str | None = None
    labels: tuple[str, ...] = ()
    #: names of patterns; empty: all that there are
    patterns: tuple[str, ...] = ()
    #: its log, where Slurm does not say or no more; `%j` and the like are filled in
    log: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tracked:
    """What became of the wish to track one job."""

    #: the job, or each task of the array
    jobs: tuple[jobs.Job, ...]
    #: it was known before
    already: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
    """A job as Slurm has it now."""

    #: newest view of it, or of each array task
    rows: tuple[tracking.Observation, ...]
    #: when Slurm first got it: its SubmitTime before any requeue
    submitted_at: datetime.datetime
    #: as scontrol or sacct name them: Command, WorkDir, SubmitLine, StdOut, StdErr
    papers: Mapping[str, str]


def track(context: contexts.Context, job_id: str, wanted: Wanted) -> Tracked:
    """Follow a job from now on; an array's ID means all its tasks.

    Tasks that are tracked one after another stand together, as those of one array. Raises
    NotFoundError when Slurm shows no such job, ConflictError for another user's, and for wishes
    other than a log about one that is known.
    """
    if _JOB_ID.fullmatch(job_id) is None:
        raise errors.NotFoundError(f"{job_id!r} is no job ID of Slurm's, such as 123 or 123_4")
    if wanted.patterns:
        patterns.select(job_patterns.configured(context.configuration), wanted.patterns)
    facts = clusters.facts(context)
    found = _find(context, facts, job_id)
    with context.store.reading() as work:
        known = _known(work, facts.cluster, found)
    if len(known) < len(found.rows):
        if tracked := [job for job in known if job.tracked_name is not None]:
            _add_log(context, job_id, tracked, wanted)
        script = _script(context, job_id.partition("_")[0])
        known = _store(context, facts.cluster, found, wanted, script)
        refresh.refresh(context, floor_seconds=0)
        already = False
    else:
        already = True
        _add_log(context, job_id, known, wanted)
    with context.store.reading() as work:
        now = [job for old in known if (job := work.jobs.get(old.row)) is not None]
    return Tracked(jobs=tuple(now), already=already)


def _find(context: contexts.Context, facts: clusters.Facts, job_id: str) -> _Found:
    number = job_id.partition("_")[0]

    def keep(name: str, row_id: str, stdout: str) -> bool:
        return row_id.partition("_")[0] == number

    live = [row for row in context.slurm.squeue(keep) if _means(job_id, row)]
    papers = context.slurm.show_job(job_id)
    if papers is not None:
        owner, _, uid = papers.get("UserId", "").partition("(")
        _refuse_foreign(job_id, owner, uid.rstrip(")"))
    accounts: dict[str, list[tracking.Observation]] = {}
    if facts.accounting:
        for row in _accounts(context, job_id, lenient=bool(live)):
            accounts.setdefault(row.job_id, []).append(row)
    if papers is None and accounts:
        papers = context.slurm.job_owner(job_id, context.clock.now() - _LONG_AGO)
        _refuse_foreign(job_id, papers.get("User", ""), papers.get("UID", ""))
    begun = _first_submitted(live, accounts)
    if begun is None:
        where = "squeue and sacct show" if facts.accounting else "squeue shows"
        raise errors.NotFoundError(
            f"{where} no job {job_id} of yours; `orchestrator track` takes a job ID that "
            "`squeue --me` prints"
        )
    rows = {row.job_id: row for row in live}
    line: str | None = None
    for name, its_rows in accounts.items():
        attempts = identity.chain([row for row in its_rows if (row.submitted_at or begun) >= begun])
        if attempts and attempts[0].submitted_at == begun:
            rows.setdefault(name, attempts[-1])
            line = line or attempts[0].submit_line
    ordered = sorted(rows.values(), key=lambda row: row.array_task_id or 0)
    known = {"SubmitLine": line} if line else {}
    return _Found(rows=tuple(ordered), submitted_at=begun, papers={**known, **(papers or {})})


def _means(job_id: str, row: tracking.Observation) -> bool:
    return job_id in (row.job_id, row.array_job_id)


def _first_submitted(
    live: Sequence[tracking.Observation], accounts: Mapping[str, Sequence[tracking.Observation]]
) -> datetime.datetime | None:
    """Return when Slurm first got the job that has this ID now."""
    if live:
        oldest = min(live, key=lambda row: row.restart_count or 0)
        restarts = oldest.restart_count or 0
        until = oldest.submitted_at
        before = [
            row.submitted_at
            for row in accounts.get(oldest.job_id, ())
            if row.submitted_at is not None and until is not None and row.submitted_at <= until
        ]
        return before[-restarts - 1 :][0] if restarts and before else until
    newest: datetime.datetime | None = None
    for its_rows in accounts.values():
        rest = list(its_rows)
        while rest:
            # Several jobs may have had the ID; the last one is meant.
            attempts = identity.chain(rest)
            begun, rest = attempts[0].submitted_at, rest[len(attempts) :]
            if begun is not None and (newest is None or begun > newest):
                newest = begun
    return newest


def _refuse_foreign(job_id: str, owner: str, uid: str) -> None:
    if uid.isdecimal() and int(uid) != os.getuid():
        raise errors.ConflictError(f"job {job_id} is {owner}'s; only your own can be tracked")


def _accounts(
    context: contexts.Context, job_id: str, *, lenient: bool
) -> list[tracking.Observation]:
    try:
        rows = context.slurm.sacct([job_id], context.clock.now() - _LONG_AGO)
    except errors.SlurmError as exc:
        if not lenient:
            raise
        context.reporter.warn(f"what sacct knows of {job_id} is left out: {exc}")
        return []
    wanted = [
        row
        for row in evidence.with_gpus(rows, clusters.facts(context))
        if _means(job_id, row) and row.state is not jobs.JobState.RESIZING
    ]
    return sorted(wanted, key=lambda row: row.row_number)


def _known(work: unit_of_work.UnitOfWork, cluster: str, found: _Found) -> tuple[jobs.Job, ...]:
    """Return the jobs that are stored already, sent by us or tracked before."""
    by_id = {row.job_id: row for row in found.rows}
    stored = work.jobs.find(jobs.JobQuery(job_ids=tuple(by_id), limit=None))
    return tuple(
        job
        for job in reversed(stored)
        if job.cluster == cluster
        and (row := by_id.get(job.job_id or "")) is not None
        and (
            identity.is_sent(job, row)
            if job.tracked_name is None
            else job.created_at == found.submitted_at
        )
    )


def _add_log(
    context: contexts.Context, job_id: str, known: Sequence[jobs.Job], wanted: Wanted
) -> None:
    """Store where jobs that are known write their logs."""
    if wanted == Wanted():
        return
    ours = any(job.tracked_name is None for job in known)
    if ours or dataclasses.replace(wanted, log=None) != Wanted():
        told = "it was submitted here" if ours else "of one that is known only --log can be given"
        raise errors.ConflictError(f"{job_id} is @{known[0].row} already ({known[0].name}): {told}")
    with context.store.writing() as work:
        for job in known:
            assert job.job_id is not None and job.tracked_name is not None, "tracked by its ID"
            path = run_folder.expand(
                wanted.log or "",
                job_id=job.job_id,
                raw_job_id=job.raw_job_id,
                name=job.tracked_name,
            )
            if path is not None:
                work.jobs.change(job.row, {"stdout_path": str(context.folder / path)})


def _script(context: contexts.Context, job_id: str) -> str:
    try:
        return context.slurm.batch_script(job_id) or ""
    except errors.SlurmError:
        # An allocation of salloc has none, and slurmctld may have forgotten the job.
        return ""


def _store(
    context: contexts.Context, cluster: str, found: _Found, wanted: Wanted, script: str
) -> tuple[jobs.Job, ...]:
    name = wanted.name or _name(found.rows[0].name)
    spec = specs.to_json(
        jobs.JobSpec(
            name=name, labels=wanted.labels, metrics=jobs.Metrics(patterns=wanted.patterns)
        )
    )
    papers = _papers(context, found)
    with context.store.reading() as work:
        token = run_folder.new_token(work.settings.installation_id())
    folder = run_folder.create(
        context.configuration.runs_dir,
        name,
        token,
        {"script.sbatch": script},
        copies={"spec.json": spec, "provenance.json": papers},
        shared_folders=context.configuration.shared_folders,
    )
    record = jobs.Submission(
        token=token,
        cluster=cluster,
        scheduler="slurm",
        name=name,
        script=script,
        spec=spec,
        run_dir=str(folder.path),
        provenance=papers,
        created_at=found.submitted_at,
    )
    try:
        with context.store.writing(durable=True) as work:
            known = _known(work, cluster, found)
            have = {job.job_id for job in known}
            rows = [row for row in found.rows if row.job_id not in have]
            # An ID of an array means one submission: what was tracked of it before has one.
            others = next((job for job in known if job.tracked_name is not None), None)
            if rows:
                added = _submitted(work, record, rows, wanted, others)
                known += _add(context, work, added, rows, found, wanted)
    except errors.OrchestratorError:
        run_folder.remove(folder)
        raise
    if not rows or others is not None:
        # Another process was faster, or the tasks share the folder of the others.
        run_folder.remove(folder)
    return tuple(sorted(known, key=lambda job: job.row))


def _submitted(
    work: unit_of_work.UnitOfWork,
    record: jobs.Submission,
    rows: Sequence[tracking.Observation],
    wanted: Wanted,
    others: jobs.Job | None,
) -> list[jobs.Job]:
    """Return new jobs: of a submission of their own, or beside others of their array."""
    tasks = [row.array_task_id for row in rows if row.array_task_id is not None]
    if others is None:
        return work.jobs.add_submission(record, array_tasks=tasks or None, labels=wanted.labels)
    state = jobs.JobState.SUBMITTING
    return work.jobs.add_tasks(others.token, tasks, state=state, labels=others.labels)


def _add(
    context: contexts.Context,
    work: unit_of_work.UnitOfWork,
    added: Sequence[jobs.Job],
    rows: Sequence[tracking.Observation],
    found: _Found,
    wanted: Wanted,
) -> tuple[jobs.Job, ...]:
    for job, row in zip(added, rows, strict=True):
        restarts = row.restart_count if row.restart_count is not None else row.row_number
        changes: dict[str, object] = {
            "job_id": row.job_id,
            "tracked_name": row.name,
            "raw_job_id": row.raw_job_id,
            "array_job_id": row.array_job_id,
            "state": row.state,
            "raw_state": row.raw_state,
            "submitted_at": row.submitted_at,
            "attempt": restarts,
            "restart_count": restarts,
            **_logs(context, row, found.papers, wanted),
        }
        work.jobs.change(job.row, changes)
        event = jobs.JobEvent(
            at=context.clock.now(),
            kind="track",
            attempt=restarts,
            state=row.state,
            raw_state=row.raw_state,
            source=row.source,
            detail=f"tracked from now on; found {row.state} under the name {row.name}",
        )
        work.events.add(job.row, event)
    return tuple(added)


def _logs(
    context: contexts.Context, row: tracking.Observation, papers: Mapping[str, str], wanted: Wanted
) -> dict[str, object]:
    """Return where the job writes its logs, as far as that is known."""
    if wanted.log is not None:
        path = run_folder.expand(
            wanted.log, job_id=row.job_id, raw_job_id=row.raw_job_id, name=row.name
        )
        return {"stdout_path": None if path is None else str(context.folder / path)}
    # What scontrol says of an array is said of one of its tasks.
    alone = row.array_task_id is None
    stdout = (papers.get("StdOut") if alone else None) or row.stdout_path
    stderr = papers.get("StdErr") if alone else None
    if not stdout and papers.get("WorkDir"):
        # sbatch's default (man sbatch); whether the job had its own is not known any more.
        default = Path(papers["WorkDir"], f"slurm-{row.job_id}.out")
        stdout = str(default) if default.is_file() else None
    return {"stdout_path": stdout, "stderr_path": stderr if stderr != stdout else None}


def _papers(context: contexts.Context, found: _Found) -> str:
    """Return the papers of a job that came from somewhere else, as JSON."""
    first = found.rows[0]
    line = found.papers.get("SubmitLine")
    return json.dumps(
        {
            "orchestrator_version": orchestrator.__version__,
            "spec": f"tracked; submitted by hand{f': {line}' if line else ''}",
            "template": "",
            "template_sha256": "",
            "host": socket.gethostname(),
            "user": users.user_name(),
            "folder": found.papers.get("WorkDir") or str(context.folder),
            "git_commit": None,
            "git_dirty": None,
            "git_diff": None,
            "slurm": {
                "JobName": first.name,
                "SubmitLine": line,
                **{name: found.papers.get(name) for name in identity.WITNESSES},
            },
        },
        indent=1,
    )


def _name(slurm_name: str) -> str:
    """Return a name for people: Slurm's, as far as it fits."""
    name = values.fitting_name(slurm_name)
    return "tracked" if name_misfit(name) else name


def name_misfit(name: str) -> str:
    """Return why a job cannot be called so; empty where it can."""
    if _JOB_ID.fullmatch(name) or name.startswith("local-"):
        return "reads as a job ID: put a letter before it"
    return values.form_error("name", name)

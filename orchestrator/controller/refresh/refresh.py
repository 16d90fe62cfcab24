"""refresh: one squeue for everything, sacct for what it no longer knows, then the exit records."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, tracking
from orchestrator.controller.metrics import log_paths
from orchestrator.controller.refresh import evidence, freshness, identity
from orchestrator.controller.resubmission import submitters
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.tracking import run_folder

#: To look at local jobs is to read some files.
LOCAL_FLOOR_SECONDS = 0.5
#: So many jobs are judged and stored at once: what is said of 5,000 takes 40 MiB.
PORTION = 1000

#: Ended jobs that are tracked are looked for so long: slurmctld forgets after MinJobAge.
REOPENED_WITHIN = datetime.timedelta(days=1)
#: Failures that are older are explained when `explain` is asked.
EXPLAINED_WITHIN = datetime.timedelta(days=1)


def refresh(
    context: contexts.Context, *, floor_seconds: float | None = None, expecting: bool = False
) -> freshness.Freshness:
    """Bring the live jobs up to date; at most one squeue an interval over all processes.

    `expecting`: Slurm is asked though nothing is expected of it, for something is to be sent. A
    Slurm that is away is no error here: states stay, and `failing_since` says since when.
    """
    local_floor = None if floor_seconds is None else min(floor_seconds, LOCAL_FLOOR_SECONDS)
    mine = refresh_one(context.with_scheduler("local"), floor_seconds=local_floor)
    there = context.with_scheduler("slurm")
    fresh = refresh_one(there, floor_seconds=floor_seconds, expecting=expecting)
    return dataclasses.replace(
        fresh, asked=fresh.asked or mine.asked, changed=fresh.changed + mine.changed
    )


def refresh_one(
    context: contexts.Context, *, floor_seconds: float | None = None, expecting: bool = False
) -> freshness.Freshness:
    """Bring the live jobs of the context's scheduler up to date."""
    usual = LOCAL_FLOOR_SECONDS if context.is_local else float(context.profile.poll_floor_seconds)
    floor = usual if floor_seconds is None else floor_seconds
    scheduler = "local" if context.is_local else "slurm"
    with context.store.reading() as work:
        # Slurm is looked at before something is sent to it again.
        due = jobs.JobQuery(due=context.clock.now(), scheduler=scheduler, limit=1)
        expected = expecting or work.jobs.find(due)
    # Without live jobs nothing is expected of Slurm; who asks outright (floor 0) is still answered,
    # so that a job requeued by hand after its end is seen.
    nothing = context.is_local and not context.machine.spool.queue()
    if not expected and (floor > 0 or nothing or clusters.known_facts(context) is None):
        return _unasked(context)
    try:
        facts = clusters.facts(context)
    except errors.SlurmError as exc:
        return freshness.Freshness(failing_since=context.clock.now(), error=str(exc))
    holder = f"{socket.gethostname()}:{os.getpid()}"
    with context.store.writing() as work:
        freshness.drop_dead_claim(work, facts.cluster)
        if not work.refreshes.claim(facts.cluster, context.clock.now(), floor, holder):
            busy = work.refreshes.get(facts.cluster).holder not in (None, holder)
            return dataclasses.replace(_unasked(context), busy=busy)
    try:
        return _ask(context, facts, holder, insist=floor == 0)
    except BaseException:
        # Ctrl-C, a full disk: nobody else would ask until the claim runs out by itself.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.refreshes.finish(facts.cluster, holder=holder)
        raise


def _unasked(context: contexts.Context) -> freshness.Freshness:
    facts = clusters.known_facts(context)
    return freshness.Freshness() if facts is None else freshness.of(context, facts.cluster)


def _ask(
    context: contexts.Context, facts: clusters.Facts, holder: str, *, insist: bool
) -> freshness.Freshness:
    context = clock_check.checked(context)
    # Read after the claim: what another process stored before it is not judged again.
    with context.store.reading() as work:
        live = work.jobs.live(facts.cluster)
        installation_id = work.settings.installation_id()
        ended = _tracked_and_ended(work, context.clock.now())
    observed_at = context.clock.now()
    try:
        queue = evidence.ask_queue(context, [*live, *ended], installation_id)
        reopened = _reopened(context, queue, live)
        reopened += [job for job in ended if tracking.is_news(job, queue.of(job))]
        everyone = [*live, *reopened]
        accounts = evidence.Accounts.ask(
            context, facts, everyone, queue, observed_at, insist=insist
        )
        judge = _Judge(
            context=context,
            facts=facts,
            queue=queue,
            accounts=accounts,
            observed_at=observed_at,
            asked_to_cancel=_asked_to_cancel(context, everyone, queue),
        )
        # Before anything is stored: a failure is one of the whole refresh.
        for job in everyone:
            judge.ask_for_papers(job)
    except errors.SlurmError as exc:
        _store_failure(context, facts.cluster, holder, live, str(exc))
        return freshness.of(context, facts.cluster)
    changed = ends = 0
    for start in range(0, max(len(everyone), 1), PORTION):
        verdicts = [(job, judge.verdict(job)) for job in everyone[start : start + PORTION]]
        unchanged = [job for job, verdict in verdicts if _is_unchanged(verdict)]
        with context.store.writing() as work:
            work.jobs.confirm([job.row for job in unchanged], observed_at)
            changed += _store(work, [pair for pair in verdicts if not _is_unchanged(pair[1])])
            if start + PORTION >= len(everyone):
                work.refreshes.finish(
                    facts.cluster,
                    holder=holder,
                    squeue_at=observed_at,
                    sacct_at=observed_at if accounts.good else None,
                )
        ends += sum(_has_ended(job, verdict) for job, verdict in verdicts)
        # Slurm has the job after all, or refused it for good: it is not sent again.
        over = {job.run_dir for job, verdict in verdicts if _sends_no_more(job, verdict)}
        for folder in sorted(over):
            run_folder.RunFolder(Path(folder)).drop_environment()
    _explain(context, facts.cluster)
    return dataclasses.replace(
        freshness.of(context, facts.cluster),
        asked=True,
        changed=changed,
        ended=ends,
        accounts_error=accounts.error,
    )


def _reopened(
    context: contexts.Context, queue: evidence.Queue, live: Sequence[jobs.Job]
) -> list[jobs.Job]:
    """Return settled jobs of which squeue has news: requeued by hand, or found after all."""
    known = {(job.token, job.array_task_id or 0) for job in live}
    tokens = {token for token, task in queue.by_token if (token, task) not in known}
    if not tokens:
        return []
    with context.store.reading() as work:
        settled = [job for job in work.jobs.of_submissions(sorted(tokens)) if job.settled]
    return [job for job in settled if tracking.is_news(job, queue.of(job))]


def _tracked_and_ended(work: unit_of_work.UnitOfWork, now: datetime.datetime) -> list[jobs.Job]:
    """Return settled jobs that are known to squeue by their ID alone, and may be requeued yet."""
    since = now - REOPENED_WITHIN
    query = jobs.JobQuery(tracked=True, since=since, limit=None)
    return [job for job in work.jobs.find(query) if job.settled]


def _asked_to_cancel(
    context: contexts.Context, everyone: Sequence[jobs.Job], queue: evidence.Queue
) -> set[int]:
    """Return the rows of the array tasks that squeue lacks and that were asked to be cancelled."""
    gone = [job.row for job in everyone if job.array_task_id is not None and not queue.of(job)]
    if not gone:
        return set()
    with context.store.reading() as work:
        return work.events.cancel_requested(gone)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Judge:
    """All that one refresh heard, and what follows from it for each job."""

    context: contexts.Context
    facts: clusters.Facts
    queue: evidence.Queue
    accounts: evidence.Accounts
    observed_at: datetime.datetime
    #: rows of jobs
    asked_to_cancel: set[int]
    #: by run folder: the attempts that began, by task. The tasks of an array share a folder
    attempts: dict[str, dict[int, list[int]]] = dataclasses.field(default_factory=dict)
    #: by run folder: nobody else can change it
    private: dict[Path, bool] = dataclasses.field(default_factory=dict)
    #: by job ID: scontrol's papers of jobs under a name of another
    papers: dict[str, Mapping[str, str] | None] = dataclasses.field(default_factory=dict)

    def ask_for_papers(self, job: jobs.Job) -> None:
        """Ask Slurm what `verdict` needs of it beyond the answers; raises SlurmError."""
        stranger = self.queue.stranger(job)
        if stranger is not None:
            self._is_renamed(job, stranger)

    def verdict(self, job: jobs.Job) -> tracking.Verdict:
        folder = run_folder.RunFolder(Path(job.run_dir))
        task = job.array_task_id or 0
        rows = tuple(_as_of(row, self.observed_at) for row in self.queue.of(job))
        reused = False
        stranger = self.queue.stranger(job)
        if stranger is not None:
            renamed = self._is_renamed(job, stranger)
            rows = (stranger,) if renamed else rows
            reused = renamed is False
        several = len({row.job_id for row in rows} | {job.job_id or ""}) > 1
        finished = several or not rows or any(row.state in jobs.TERMINAL for row in rows)
        is_evidence = finished and self._is_private(folder)
        attempts = self._attempts(folder).get(task, []) if is_evidence else []
        array_job_id = None
        if job.array_task_id is not None and not rows:
            array_job_id = evidence.array_of(job, self.queue, self.accounts)
        seen = tracking.Witnesses(
            squeue=rows,
            sacct=self.accounts.of(job),
            record=_record(folder, job, task, attempts, self.observed_at) if attempts else None,
            # The machine itself numbers its jobs and knows them all by their tokens.
            owner=folder.owner(task) if is_evidence and not self.context.is_local else None,
            reused=reused,
            array_job_id=array_job_id,
            cancel_asked=job.row in self.asked_to_cancel,
        )
        now = self.context.clock.now()
        return tracking.judge(
            job,
            seen,
            tracking.Answers(
                squeue_at=self.observed_at,
                sacct_asked=job.row in self.accounts.asked,
                accounting=self.accounts.accounting,
                steps_known=job.row not in self.accounts.stepless,
            ),
            submitter_alive=submitters.is_submitting(job, now),
            grace_seconds=clusters.grace_seconds(self.context, self.facts),
            now=now,
        )

    def _is_renamed(self, job: jobs.Job, stranger: tracking.Observation) -> bool | None:
        """Return whether the row with the job's ID is the job under a new name; None: not known.

        A person may rename a job that waits: only Slurm's own papers tell it from another job.
        """
        if job.tracked_name is not None and not identity.may_be(job, stranger):
            return False
        papers = self._papers(stranger)
        return None if papers is None else identity.in_papers(self.context, job, papers)

    def _papers(self, stranger: tracking.Observation) -> Mapping[str, str] | None:
        job_id = stranger.array_job_id or stranger.raw_job_id
        if job_id not in self.papers:
            self.papers[job_id] = self.context.scheduler.show_job(job_id)
        return self.papers[job_id]

    def _is_private(self, folder: run_folder.RunFolder) -> bool:
        if folder.path not in self.private:
            if why := contexts.run_folder_exposure(self.context, folder.path):
                self.context.reporter.warn(f"Its claims and exit records do not count: {why}")
            self.private[folder.path] = not why
        return self.private[folder.path]

    def _attempts(self, folder: run_folder.RunFolder) -> dict[int, list[int]]:
        key = str(folder.path)
        if key not in self.attempts:
            self.attempts[key] = folder.attempts()
        return self.attempts[key]


def _as_of(row: tracking.Observation, at: datetime.datetime) -> tracking.Observation:
    """Return what squeue said again, word for word, as of now."""
    return row if row.observed_at >= at else dataclasses.replace(row, observed_at=at)


def _record(
    folder: run_folder.RunFolder,
    job: jobs.Job,
    task: int,
    attempts: Sequence[int],
    observed_at: datetime.datetime,
) -> tracking.Observation | None:
    if attempts[-1] < job.attempt:
        # An earlier attempt's: this one never began.
        return None
    record = folder.exit_record(task, attempts[-1])
    if record is None or not record.fits(
        token=job.token, owner=folder.owner(task), task=task, attempt=attempts[-1]
    ):
        return None
    return record.observation(name=run_folder.slurm_name(job.name, job.token), at=observed_at)


def _sends_no_more(job: jobs.Job, verdict: tracking.Verdict) -> bool:
    return job.resend_at is not None and verdict.changes.get("resend_at", job) is None


def _has_ended(job: jobs.Job, verdict: tracking.Verdict) -> bool:
    return job.state not in jobs.TERMINAL and verdict.changes.get("state") in jobs.TERMINAL


def _explain(context: contexts.Context, cluster: str) -> None:
    """Store the causes of new failures, also where a refresh before was ended before it did."""
    since = context.clock.now() - EXPLAINED_WITHIN
    query = jobs.JobQuery(unexplained_since=since, limit=None)
    with context.store.reading() as work:
        failed = [job.row for job in work.jobs.find(query) if job.cluster == cluster]
    if failed:
        # Reads logs: only where there is a failure to be told.
        from orchestrator.controller.diagnosis import explanations

        explanations.store_causes(context, failed)


def _is_unchanged(verdict: tracking.Verdict) -> bool:
    return not verdict.events and set(verdict.changes) == {"observed_at"}


def _store(
    work: unit_of_work.UnitOfWork, verdicts: Sequence[tuple[jobs.Job, tracking.Verdict]]
) -> int:
    """Store the verdicts and return of how many jobs something happened.

    In a few statements, whatever the number of jobs. A row that another process changed meanwhile
    stays as it is: the next refresh judges it anew.
    """
    wanted = [pair for pair in verdicts if pair[1].changes or pair[1].events]
    places: dict[str, log_paths.LogPaths | None] = {}

    def changes(job: jobs.Job, verdict: tracking.Verdict) -> dict[str, object]:
        after = dataclasses.replace(job, **verdict.changes)  # type: ignore[arg-type]
        is_new = after.job_id is not None and after.job_id != job.job_id
        # %j in the path of an array task's log becomes known when it starts.
        has_begun = (
            after.array_task_id is not None and job.started_at is None is not after.started_at
        )
        # Of a job that was submitted by hand Slurm itself tells the log.
        if job.tracked_name is not None or not (is_new or has_begun):
            return verdict.changes
        if job.token not in places:
            submission = work.jobs.submission(job.token)
            places[job.token] = (
                None if submission is None else log_paths.LogPaths.of_submission(submission)
            )
        found = places[job.token]
        raw_job_id = None if after.started_at is None else after.raw_job_id
        paths = {} if found is None else found.paths(job, str(after.job_id), raw_job_id)
        return {**verdict.changes, **{name: path for name, path in paths.items() if path}}

    stored = work.jobs.change_many(
        [(job.row, changes(job, verdict), job.version) for job, verdict in wanted]
    )
    kept = [pair for pair in wanted if pair[0].row in stored]
    earlier = {
        (row, attempt.number): attempt
        for row, attempts in work.attempts.of_jobs(stored).items()
        for attempt in attempts
    }
    work.attempts.put(
        (job.row, tracking.merged(earlier.get((job.row, attempt.number)), attempt))
        for job, verdict in kept
        for attempt in verdict.attempts
    )
    work.events.add_many((job.row, event) for job, verdict in kept for event in verdict.events)
    return sum(bool(verdict.events) for _, verdict in kept)


def _store_failure(
    context: contexts.Context, cluster: str, holder: str, live: Sequence[jobs.Job], error: str
) -> None:
    with context.store.writing() as work:
        # Absence counts only over answers that follow one another (tracking.adopting).
        present = {"misses": 0, "missing_since": None}
        work.jobs.change_many([(job.row, present, job.version) for job in live if job.misses])
        work.refreshes.finish(cluster, holder=holder, failed_at=context.clock.now(), error=error)

"""A step of the controller: uploads and exports what changed, if the configuration asks for it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from orchestrator import errors, jobs, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.session import contexts
from orchestrator.controller.trackers import mlflow, programs, runs, tensorboard
from orchestrator.files import run_folder
from orchestrator.processes import process
from orchestrator.text import nouns

#: setting that stores the progress
KEY = "trackers synchronized"
#: Such an event is no change that is worth another attempt.
_EVENT = "tracker"
#: Then the job is left out until it changes again.
_MAX_FAILURES = 5
_FIRST_PAUSE_SECONDS = 60.0


@dataclasses.dataclass(kw_only=True)
class Progress:
    #: numbers of the newest event and metric that were looked at
    event: int
    metric: int
    #: rows of jobs -> failures so far, and when they are tried again, in seconds since 1970
    pending: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)


def step(context: contexts.Context) -> list[str]:
    """Bring the runs of changed jobs up to date; return messages.

    An error is recorded in the history of its job, and tried again after a growing pause.
    """
    settings = context.configuration.tracking
    progress = _look(context)
    deadline = context.deadline.within(settings.sync_seconds)
    now = context.clock.now().timestamp()
    done = 0
    try:
        for row, (failures, due_at) in sorted(progress.pending.items(), key=lambda each: each[1]):
            if deadline.is_over:
                break
            if due_at > now:
                continue
            context.guard.check()
            try:
                done += _bring_up_to_date(context, row, deadline)
            except errors.OrchestratorError as error:
                if isinstance(error, errors.DatabaseError):
                    raise
                _failed(context, progress, row, failures + 1, str(error), now)
            else:
                del progress.pending[row]
    finally:
        with context.store.writing() as work:
            work.settings.put(KEY, _to_json(progress))
    return [f"{nouns.count(done, 'run')} brought up to date in trackers"] if done else []


def _look(context: contexts.Context) -> Progress:
    """Return the progress with the jobs that changed since then; at first none."""
    with context.store.reading() as work:
        text = work.settings.get(KEY)
        event, metric = work.changes.newest_event(), work.changes.newest_metric()
        if text is None:
            return Progress(event=event, metric=metric)
        progress = _from_json(text)
        rows = work.changes.jobs_with_events(progress.event, other_than=_EVENT)
        rows |= work.changes.jobs_with_metrics(progress.metric)
        # Jobs that continue one another are one run.
        last = set(work.recovery.last_in_chain(rows).values())
    for row in last:
        # New facts may be what was missing.
        progress.pending[row] = 0, 0.0
    return dataclasses.replace(progress, event=event, metric=metric)


def _failed(
    context: contexts.Context, progress: Progress, row: int, failures: int, why: str, now: float
) -> None:
    if failures < _MAX_FAILURES:
        progress.pending[row] = failures, now + _FIRST_PAUSE_SECONDS * 4 ** (failures - 1)
    else:
        del progress.pending[row]
    if failures in (1, _MAX_FAILURES):
        end = "" if failures == 1 else "; not tried again until the job changes"
        with context.store.writing() as work:
            event = context.event(_EVENT, f"{why}{end}", source="controller")
            work.events.add_many([(row, event)])


def _bring_up_to_date(context: contexts.Context, row: int, deadline: deadlines.Deadline) -> bool:
    """Return whether something was sent or written; an error of one tracker stops no other."""
    settings = context.configuration.tracking
    with context.store.reading() as work:
        selected = work.jobs.find(jobs.JobQuery(rows=[row], limit=None))
    if not selected:
        return False
    (chain,) = runs.chains(context, selected)
    python = functools.cache(lambda: programs.python_of(context, chain, settings.python))
    is_changed, failed = False, None
    # A server that does not answer takes its share of the time, and no file waits for it.
    senders = [*(send for target, send in _EXPORTS.items() if target in settings.export), _upload]
    for remaining in range(len(senders), 0, -1):
        send = senders[-remaining]
        limit_seconds = min(deadline.left_seconds, settings.sync_seconds) / remaining
        try:
            is_changed |= bool(limit_seconds) and send(context, chain, python, limit_seconds)
        except errors.DatabaseError:
            raise
        except errors.OrchestratorError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return is_changed


_Chain: TypeAlias = Sequence[jobs.Job]
_Python: TypeAlias = Callable[[], str]


def _upload(
    context: contexts.Context, chain: _Chain, python: _Python, limit_seconds: float
) -> bool:
    folders = list(_offline_folders(context, chain))
    if folders:
        command = argv(python(), folders)
        # `python -m` would import a file wandb.py of the current folder.
        parse(
            process.run(command, limit_seconds, context.environ, die_with_parent=True, folder="/")
        )
    return bool(folders)


def _to_tensorboard(
    context: contexts.Context, chain: _Chain, python: _Python, limit_seconds: float
) -> bool:
    run = runs.of_chain(context, chain)
    folder = Path(context.configuration.tracking.export_dir or "")
    return bool(run.series and tensorboard.export(run, folder).added)


def _to_mlflow(
    context: contexts.Context, chain: _Chain, python: _Python, limit_seconds: float
) -> bool:
    run = runs.of_chain(context, chain)
    if not run.series:
        return False
    uri = context.configuration.tracking.mlflow_uri
    done = mlflow.export(context, run, python=python(), uri=uri, timeout_seconds=limit_seconds)
    return bool(done.added)


#: Files come first.
_EXPORTS = {"tensorboard": _to_tensorboard, "mlflow": _to_mlflow}


def argv(python: str, folders: Sequence[Path]) -> list[str]:
    # Folders of one run are uploaded in the order of their start.
    return [python, "-m", "wandb", "sync", "--yes", *map(str, folders)]


def parse(result: process.Result) -> None:
    """Raise ProgramError if `wandb sync` failed."""
    last = (result.stderr.strip().splitlines() or ["no message"])[-1]
    if result.timed_out:
        raise programs.ProgramError(f"wandb sync did not finish in {result.seconds:.0f} s: {last}")
    if result.returncode:
        raise programs.ProgramError(f"wandb sync failed: {last}")


def _offline_folders(context: contexts.Context, chain: Sequence[jobs.Job]) -> Iterator[Path]:
    """Yield the offline folders of attempts that have ended and were not uploaded."""
    first, last = chain[0], chain[-1]
    with context.store.reading() as work:
        spec = specs.from_json(work.jobs.submission_of(last.row).spec)
    if "wandb" not in (spec.tracking.trackers or ()):
        return
    folder = run_folder.RunFolder(Path(first.run_dir)).tracking(first.array_task_id) / "wandb"
    folders = sorted(folder.glob("offline-run-*"))
    if last.state not in jobs.TERMINAL:
        # A program may still write into the newest one.
        folders = folders[:-1]
    for each in folders:
        if not any(each.glob("*.synced")):
            yield each


def _to_json(progress: Progress) -> str:
    return json.dumps(dataclasses.asdict(progress))


def _from_json(text: str) -> Progress:
    data = json.loads(text)
    pending = {int(row): (int(each[0]), float(each[1])) for row, each in data["pending"].items()}
    return Progress(event=data["event"], metric=data["metric"], pending=pending)

"""What a job used of what it got: asked for once it has ended, and kept."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import Any

from orchestrator import errors, jobs, specs
from orchestrator.controller.refresh import slurm_queries
from orchestrator.controller.session import clusters, contexts, queries
from orchestrator.slurm import failures
from orchestrator.usage import efficiency, gpus

#: What Slurm has not told of an ended job by then it never will.
_COMPLETE_AFTER = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What is known of the newest attempt of a job."""

    #: none while it has not begun
    card: efficiency.Efficiency | None
    gpus: tuple[gpus.Figures, ...]


def of(context: contexts.Context, details: queries.Details, *, ask: bool) -> Told:
    """Return the card of a job; sacct is asked once for each attempt that has ended.

    `ask` false: only what is stored and what lies in files.
    """
    from orchestrator.controller.usage import gpu_files

    job = details.job
    if job.started_at is None:
        return Told(card=None, gpus=())
    with context.store.reading() as work:
        stored = work.attempts.used_figures(job.row, job.attempt)
    if stored is not None and (kept := _from_json(stored)) is not None:
        return Told(card=_card(context, job, kept[0], kept[1], ""), gpus=tuple(kept[1]))
    spec = specs.from_json(details.submission.spec)
    found = gpu_files.figures(job, spec, json.loads(details.submission.provenance))
    here = context.with_scheduler(job.scheduler)
    used, why = _ask(here, job) if ask else (None, "not asked (--no-refresh)")
    is_final = used is not None and job.settled and job.state in jobs.TERMINAL
    old = context.clock.now() - (job.ended_at or context.clock.now()) > _COMPLETE_AFTER
    if used is not None and is_final and (used.complete or old):
        # On a disk that is full it is asked for again next time.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.attempts.put_used_figures(job.row, job.attempt, _to_json(used, found))
    return Told(card=_card(context, job, used, found, why), gpus=tuple(found))


def _card(
    context: contexts.Context,
    job: jobs.Job,
    used: efficiency.Used | None,
    found: Sequence[gpus.Figures],
    why: str,
) -> efficiency.Efficiency:
    assert job.started_at is not None
    end = job.ended_at or (None if job.state in jobs.TERMINAL else context.clock.now())
    elapsed = None if end is None else max(0, int((end - job.started_at).total_seconds()))
    return efficiency.card(job, used, found, elapsed_seconds=elapsed, why_unknown=why)


def _ask(context: contexts.Context, job: jobs.Job) -> tuple[efficiency.Used | None, str]:
    """Return what the attempt used, or why that is not known."""
    if job.state not in jobs.TERMINAL:
        return None, "told when the job has ended"
    if job.job_id is None:
        return None, "the job has no ID"
    if not context.is_local:
        facts = clusters.known_facts(context)
        if facts is None or facts.cluster != job.cluster:
            return None, f"only {job.cluster} can tell"
        if not facts.accounting:
            return None, "this cluster keeps no accounts"
        if error := slurm_queries.sacct_pause(context, facts.cluster, context.clock.now()):
            return None, error.splitlines()[0]
    try:
        since = job.created_at - slurm_queries.SACCT_MARGIN
        used = context.scheduler.used(job.job_id, job.submitted_at, since)
    except errors.SlurmError as exc:
        if isinstance(exc, failures.Unreachable):
            with contextlib.suppress(errors.DatabaseError):
                slurm_queries.pause_sacct(context, job.cluster, str(exc))
        return None, str(exc).splitlines()[0]
    return used, "" if used is not None else "the accounts have no such job"


def _to_json(used: efficiency.Used, found: Sequence[gpus.Figures]) -> str:
    told = {"used": dataclasses.asdict(used), "gpus": [dataclasses.asdict(one) for one in found]}
    return json.dumps(told)


def _from_json(text: str) -> tuple[efficiency.Used, list[gpus.Figures]] | None:
    """Return what `_to_json` wrote; None where another version wrote something else."""
    try:
        told = json.loads(text)
        return efficiency.Used(**told["used"]), [_figures(one) for one in told["gpus"]]
    except (ValueError, TypeError, KeyError):
        return None


def _figures(data: dict[str, Any]) -> gpus.Figures:
    spreads = {
        name: gpus.Spread(**value) for name, value in data.items() if isinstance(value, dict)
    }
    return gpus.Figures(**{**data, **spreads})

"""verdicts: what a scheduled job or sweep has shown, once it has ended, against those before it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs, reports, schedules
from orchestrator.controller.schedules import submitted
from orchestrator.controller.session import contexts

if typing.TYPE_CHECKING:
    from orchestrator.reports import comparison

#: So many earlier firings are what a later one is held to.
HISTORY = 10
#: These firings are no measure for later ones: a slow-down that goes on is told until somebody
#: accepts it, by a baseline or by taking the schedule anew.
NO_MEASURE = frozenset({"failed", "regression"})
#: Firings that are judged in one pass: each reads what its jobs' logs tell.
MOST = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of a firing."""

    #: ok, improvement, regression, inconclusive, no baseline, not measured or failed
    word: str
    #: why, for people
    sentence: str
    #: what it was held to, the comparison, what was left out
    detail: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def judge(context: contexts.Context) -> list[str]:
    """Judge what has ended; return what was said of each."""
    told = []
    with context.store.reading() as work:
        found = [
            one
            for one in work.schedules.triggers_without_verdict()
            if submitted.has_ended(work, one)
        ]
    for firing in found[:MOST]:
        context.guard.check()
        with context.store.reading() as work:
            stored = work.schedules.get(firing.schedule_row)
        try:
            verdict = of(context, stored, firing)
        except (errors.DatabaseError, errors.FencedError):
            raise
        except errors.OrchestratorError as exc:
            verdict = Verdict(word="inconclusive", sentence=str(exc))
        detail = {"sentence": verdict.sentence, **verdict.detail}
        with context.store.writing(durable=True) as work:
            if work.schedules.change_trigger(
                firing,
                verdict=verdict.word,
                verdict_detail=detail,
                verdict_at=context.clock.now(),
            ):
                at = f"{firing.planned_at:%Y-%m-%dT%H:%MZ}"
                told.append(f"Schedule {stored.name}: {at} {verdict.word}: {verdict.sentence}")
    return told


def of(context: contexts.Context, stored: schedules.Schedule, firing: schedules.Trigger) -> Verdict:
    """Return the verdict on a firing whose jobs have all ended."""
    from orchestrator.controller.reports import measurements
    from orchestrator.reports import comparison

    # Warnings about files of earlier triggers would come in each pass.
    quiet = context.with_reporter(context.reporter.silent())
    with context.store.reading() as work:
        found = submitted.jobs_of(work, firing)
        points = len(work.sweeps.points(firing.sweep_row)) if firing.sweep_row else len(found)
        renamed = _renamed(work, firing)
    now = measurements.measure(quiet, found, renamed=renamed)
    bad = points - sum(job.state is jobs.JobState.COMPLETED for job in found)
    failed = f"{bad} of {points} did not complete" if bad else ""
    detail: dict[str, Any] = {"jobs": points, "failed": bad, "left_out": list(now.left_out)}
    before, against = _before(quiet, stored, firing, renamed)
    detail["against"] = against
    if not now.measurements or before is None or not before.measurements:
        if failed:
            return Verdict(word="failed", sentence=failed, detail=detail)
        if not now.measurements:
            told = f"{points} completed, and told no numbers"
            return Verdict(word="not measured", sentence=told, detail=detail)
        return Verdict(word="no baseline", sentence=f"there is {against}", detail=detail)
    if now.unit != before.unit:
        told = f"sizes are {now.unit} here and {before.unit} in {against}: they do not compare"
        word = "failed" if failed else "inconclusive"
        return Verdict(word=word, sentence="; ".join(filter(None, (failed, told))), detail=detail)
    compared = comparison.compare(now.measurements, before.measurements, unit=now.unit)
    worse = comparison.worse(compared, now.unit)
    detail |= {
        "comparison": comparison.rows(compared),
        "worse": worse,
        "notes": list(compared.notes),
    }
    word, told = _judged(compared, worse, against)
    if failed:
        word, told = "failed", "; ".join([failed, *worse])
    return Verdict(word=word, sentence=told, detail=detail)


def _judged(compared: comparison.Comparison, worse: Sequence[str], against: str) -> tuple[str, str]:
    if worse:
        return "regression", f"{'; '.join(worse)}, held to {against}"
    known = [line for line in compared.lines if line.comparison.low is not None]
    if not known or compared.missing:
        why = "; ".join(compared.notes) or "too few runs"
        return "inconclusive", f"held to {against}: {why}"
    words = {"faster", "better"}
    if better := [line for line in known if line.verdict in words]:
        each = ", ".join(dict.fromkeys(f"{line.metric} is {line.verdict}" for line in better))
        return "improvement", f"{each}, held to {against}"
    return "ok", f"nothing is worse than {against}"


def _before(
    context: contexts.Context,
    stored: schedules.Schedule,
    firing: schedules.Trigger,
    renamed: Mapping[str, str],
) -> tuple[reports.MeasurementSet | None, str]:
    """Return the numbers that a firing is held to, and what they are, or that there are none."""
    from orchestrator.controller.reports import baselines, measurements

    if stored.baseline is not None:
        with context.store.reading() as work:
            text = work.baselines.measurements(stored.baseline)
        name = f"baseline {stored.baseline}"
        return (None, f"no {name}") if text is None else (baselines.from_json(text), name)
    with context.store.reading() as work:
        earlier = work.schedules.triggers_to_compare(
            firing, stored, except_verdicts=NO_MEASURE, limit=HISTORY
        )
        several = [job for one in earlier for job in submitted.jobs_of(work, one)]
    before = measurements.measure(context, several, renamed=renamed)
    if not before.measurements:
        return None, "nothing before it to be held to"
    count = "the firing" if len(earlier) == 1 else f"the {len(earlier)} firings"
    return reports.MeasurementSet(
        unit=before.unit, measurements=before.measurements
    ), f"{count} before"


def _renamed(work: unit_of_work.UnitOfWork, firing: schedules.Trigger) -> dict[str, str]:
    from orchestrator.controller.reports import studies

    if firing.sweep_row is None:
        return {}
    sweep = work.sweeps.get(firing.sweep_row)
    assert sweep is not None, "sweeps are never deleted"
    document = work.sweeps.document(firing.sweep_row)
    return studies.batch_names(sweep.kind, document.get("sweep", {}))

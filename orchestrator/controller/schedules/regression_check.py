"""Compares the results of a schedule's ended runs with earlier runs or with a baseline."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs, reports
from orchestrator.controller.schedules import submit_later
from orchestrator.controller.session import contexts
from orchestrator.schedules import records

if typing.TYPE_CHECKING:
    from orchestrator.reports import comparison

#: Earlier runs that a run is compared with.
_HISTORY = 10
#: Runs with these verdicts are not compared with: a lasting slow-down is reported each time, until
#: it is accepted by a baseline or by replacing the schedule.
_EXCLUDED = frozenset({"failed", "regression"})
_ALL_STATES: tuple[records.ScheduleState, ...] = ("active", "paused", "removed")
#: Runs per pass: each reads the logs of its jobs.
_MAX_RUNS = 20

#: Verdict, explanation for people, details for JSON. The verdict is ok, improvement, regression,
#: inconclusive, no baseline, not measured or failed.
_Result = tuple[str, str, Mapping[str, Any]]


def step(context: contexts.Context) -> list[str]:
    """Check the runs that have ended; return messages."""
    messages = []
    with context.store.reading() as work:
        fired = work.schedules.triggers_without_verdict()
        ended = [trigger for trigger in fired if submit_later.has_ended(work, trigger)]
    for trigger in ended[:_MAX_RUNS]:
        context.guard.check()
        with context.store.reading() as work:
            schedule = work.schedules.get(trigger.schedule_row)
        try:
            verdict, sentence, detail = _check(context, schedule, trigger)
        except (errors.DatabaseError, errors.FencedError):
            raise
        except errors.OrchestratorError as exc:
            verdict, sentence, detail = "inconclusive", str(exc), {}
        with context.store.writing(durable=True) as work:
            if work.schedules.change_trigger(
                trigger,
                verdict=verdict,
                verdict_detail={"sentence": sentence, **detail},
                verdict_at=context.clock.now(),
            ):
                at = f"{trigger.planned_at:%Y-%m-%dT%H:%MZ}"
                messages.append(f"Schedule {schedule.name}: {at} {verdict}: {sentence}")
    return messages


def needed(work: unit_of_work.UnitOfWork) -> list[tuple[records.Trigger, str]]:
    """Return the triggers that the next checks will read, each with the name of its schedule."""
    names = {schedule.row: schedule.name for schedule in work.schedules.all(states=_ALL_STATES)}
    triggers = work.schedules.triggers_without_verdict()
    for schedule in work.schedules.all():
        if schedule.baseline is None:
            triggers += work.schedules.triggers_to_compare(
                None, schedule, except_verdicts=_EXCLUDED, limit=_HISTORY
            )
    return [(trigger, names[trigger.schedule_row]) for trigger in triggers]


def _check(
    context: contexts.Context, schedule: records.Schedule, trigger: records.Trigger
) -> _Result:
    from orchestrator.controller.reports import measurements, studies
    from orchestrator.reports import comparison

    # Warnings about missing files of earlier runs would come in each pass.
    context = context.with_reporter(context.reporter.silent())
    with context.store.reading() as work:
        run = submit_later.jobs_of(work, trigger)
        points, renamed = len(run), {}
        if trigger.sweep_row is not None:
            sweep = work.sweeps.get(trigger.sweep_row)
            assert sweep is not None, "sweeps are never deleted"
            points = len(work.sweeps.points(sweep.row))
            renamed = studies.batch_names(work, sweep)
    now = measurements.measure(context, run, renamed=renamed)
    before, name = _reference(context, schedule, trigger, renamed)
    count = points - sum(job.state is jobs.JobState.COMPLETED for job in run)
    failed = f"{count} of {points} did not complete" if count else ""
    detail: dict[str, Any] = {
        "jobs": points,
        "failed": count,
        "left_out": list(now.left_out),
        "against": name,
    }
    if not now.measurements or before is None or not before.measurements:
        if failed:
            return "failed", failed, detail
        if not now.measurements:
            return "not measured", f"{points} completed without metrics", detail
        return "no baseline", name, detail
    if now.unit != before.unit:
        sentence = f"not comparable: sizes are in {now.unit}, those of {name} in {before.unit}"
        verdict = "failed" if failed else "inconclusive"
        return verdict, "; ".join(filter(None, (failed, sentence))), detail
    compared = comparison.compare(now.measurements, before.measurements, unit=now.unit)
    worse = comparison.worse(compared, now.unit)
    detail |= {
        "comparison": comparison.rows(compared),
        "worse": worse,
        "notes": list(compared.notes),
    }
    if failed:
        return "failed", "; ".join([failed, *worse]), detail
    return (*_verdict(compared, worse, name), detail)


def _verdict(compared: comparison.Comparison, worse: Sequence[str], name: str) -> tuple[str, str]:
    if worse:
        return "regression", f"{'; '.join(worse)}, compared with {name}"
    known = [line for line in compared.lines if line.ratio_low is not None]
    if not known or compared.missing:
        reason = "; ".join(compared.notes) or "too few runs"
        return "inconclusive", f"compared with {name}: {reason}"
    if better := [line for line in known if line.verdict in ("faster", "better")]:
        texts = dict.fromkeys(f"{line.metric} is {line.verdict}" for line in better)
        return "improvement", f"{', '.join(texts)}, compared with {name}"
    return "ok", f"nothing is worse than {name}"


def _reference(
    context: contexts.Context,
    schedule: records.Schedule,
    trigger: records.Trigger,
    renamed: Mapping[str, str],
) -> tuple[reports.MeasurementSet | None, str]:
    """Return the results to compare with and their name, or None and why there are none."""
    from orchestrator.controller.reports import baselines, measurements

    if schedule.baseline is not None:
        with context.store.reading() as work:
            text = work.baselines.measurements(schedule.baseline)
        if text is None:
            return None, f"baseline {schedule.baseline} not found"
        return baselines.from_json(text), f"baseline {schedule.baseline}"
    with context.store.reading() as work:
        earlier = work.schedules.triggers_to_compare(
            trigger, schedule, except_verdicts=_EXCLUDED, limit=_HISTORY
        )
        earlier_jobs = [job for each in earlier for job in submit_later.jobs_of(work, each)]
    before = measurements.measure(context, earlier_jobs, renamed=renamed)
    if not before.measurements:
        return None, "no earlier run to compare with"
    name = "the previous run" if len(earlier) == 1 else f"the previous {len(earlier)} runs"
    return before, name

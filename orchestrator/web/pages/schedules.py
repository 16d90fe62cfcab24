"""Schedules: a calendar of past and next runs, and how the runs of one compare."""

from __future__ import annotations

import calendar
import collections
import dataclasses
import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette import requests, responses

from orchestrator import errors
from orchestrator.controller.schedules import management
from orchestrator.controller.session import contexts
from orchestrator.reports import figures
from orchestrator.rows import schedule_rows
from orchestrator.schedules import records
from orchestrator.web import plots, site

#: Past, and next, runs of a schedule in a month.
_MAX_RUNS = 1500
#: Runs of a schedule on one day that are listed one by one.
_MAX_LISTED = 3
#: Checks on the page of a schedule.
_MAX_CHECKS = 100
_MAX_SERIES = 8
_KINDS = {"waiting": "waiting", "fired": "completed", "skipped": "stopped", "failed": "failed"}
_WORDS = {"fired": "submitted"}
#: Later months are not asked for.
_MAX_YEAR = 2200


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A past or next run of a schedule, or several of one day."""

    schedule: records.Schedule
    #: in the zone of the schedule; None: several
    time: str | None
    #: class in style.css
    kind: str
    #: what became of it
    word: str
    title: str
    url: str


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    now = web.context.clock.now()
    month = _month(request.query_params.get("month", ""), now)
    with web.context.store.reading() as work:
        stored = work.schedules.all()
    return site.page(
        "schedules.html.j2",
        schedules=[
            schedule_rows.schedule_row(summary)
            for summary in management.summaries(web.context, stored)
        ],
        month=month,
        weeks=_weeks(web.context, stored, month, now),
        weekdays=calendar.day_name,
        today=now.astimezone().date(),
        earlier=_shifted(month, -1),
        later=_shifted(month, 1),
    )


def show_one(request: requests.Request) -> responses.Response:
    """Show the past runs of a schedule, and their regression checks over time."""
    web = site.of(request)
    row = request.path_params["row"]
    with web.context.store.reading() as work:
        everything = work.schedules.all(states=("active", "paused", "removed"))
        schedule = next((each for each in everything if each.row == row), None)
        if schedule is None:
            raise errors.NotFoundError(f"There is no schedule @{row}.")
        triggers = work.schedules.triggers(row, limit=_MAX_CHECKS)
    (summary,) = management.summaries(web.context, [schedule])
    return site.page(
        "schedule.html.j2",
        schedule=schedule_rows.schedule_row(summary),
        next_times=_next_times(schedule, web.context.clock.now()),
        triggers=[_trigger(trigger, schedule) for trigger in triggers],
        plots=[plots.draw(figure) for figure in _figures(triggers[::-1], schedule)],
        size=plots,
        limit=_MAX_CHECKS,
    )


def _month(text: str, now: datetime.datetime) -> datetime.date:
    """Return the first day of the month `2026-11`; of this month if it is none."""
    current = now.astimezone().date().replace(day=1)
    try:
        month = datetime.date.fromisoformat(f"{text}-01")
    except ValueError:
        return current
    return month if 1970 <= month.year <= _MAX_YEAR else current


def _shifted(month: datetime.date, months: int) -> datetime.date:
    number = month.year * 12 + month.month - 1 + months
    return datetime.date(number // 12, number % 12 + 1, 1)


def _weeks(
    context: contexts.Context,
    stored: Sequence[records.Schedule],
    month: datetime.date,
    now: datetime.datetime,
) -> list[list[tuple[datetime.date, list[PlannedRun]]]]:
    """Return the days of a month by week, each with its runs."""
    by_day: dict[datetime.date, list[PlannedRun]] = collections.defaultdict(list)
    # The zones differ by less than a day.
    margin = datetime.timedelta(days=1)
    begin = datetime.datetime.combine(month, datetime.time(), datetime.UTC) - margin
    end = datetime.datetime.combine(_shifted(month, 1), datetime.time(), datetime.UTC) + margin
    for schedule in stored:
        with context.store.reading() as work:
            past = work.schedules.triggers_between(schedule.row, begin, end, limit=_MAX_RUNS)
        runs: list[tuple[datetime.datetime, records.Trigger | None]] = [
            *((trigger.planned_at, trigger) for trigger in past),
            *((at, None) for at in _planned(schedule, max(now, begin), end)),
        ]
        zone = schedule_rows.zone_of(schedule.tz)
        local = [(at.astimezone(zone), trigger) for at, trigger in runs]
        for day, group in itertools.groupby(local, lambda each: each[0].date()):
            by_day[day] += _runs_of_day(schedule, list(group))
    weeks = calendar.Calendar().monthdatescalendar(month.year, month.month)
    return [
        [(day, sorted(by_day[day], key=lambda run: run.time or "")) for day in week]
        for week in weeks
    ]


def _planned(
    schedule: records.Schedule, begin: datetime.datetime, end: datetime.datetime
) -> Iterator[datetime.datetime]:
    """Yield the next planned times before the end; none while it is paused."""
    if schedule.is_paused:
        return
    try:
        times = schedule.calendar.after(max(begin, schedule.decided_until))
        before_end = itertools.takewhile(lambda at: at < end, times)
        yield from itertools.islice(before_end, _MAX_RUNS)
    except errors.OrchestratorError:
        # This host does not know the time zone.
        return


def _next_times(schedule: records.Schedule, now: datetime.datetime) -> list[datetime.datetime]:
    end = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    return list(itertools.islice(_planned(schedule, now, end), 5))


def _runs_of_day(
    schedule: records.Schedule,
    runs: Sequence[tuple[datetime.datetime, records.Trigger | None]],
) -> Iterator[PlannedRun]:
    if len(runs) > _MAX_LISTED:
        words = collections.Counter(
            "planned" if trigger is None else _trigger(trigger, schedule)["word"]
            for _, trigger in runs
        )
        kinds = {"none" if each is None else _kind(each) for _, each in runs}
        worst = next(kind for kind in ("failed", "waiting", "completed", *kinds) if kind in kinds)
        word = ", ".join(f"{count} {word}" for word, count in words.items())
        url = f"/schedules/{schedule.row}"
        title = f"{runs[0][0]:%H:%M} to {runs[-1][0]:%H:%M} {schedule.tz}"
        yield PlannedRun(schedule=schedule, time=None, kind=worst, word=word, title=title, url=url)
        return
    for at, trigger in runs:
        shown = {"word": "planned", "url": ""} if trigger is None else _trigger(trigger, schedule)
        yield PlannedRun(
            schedule=schedule,
            time=f"{at:%H:%M}",
            kind="none" if trigger is None else _kind(trigger),
            word=str(shown["word"]),
            title=f"{at:%Y-%m-%d %H:%M} {schedule.tz} {shown.get('sentence') or ''}".rstrip(),
            url=str(shown["url"]) or f"/schedules/{schedule.row}",
        )


def _kind(trigger: records.Trigger) -> str:
    return "failed" if trigger.verdict in ("regression", "failed") else _KINDS[trigger.state]


def _trigger(trigger: records.Trigger, schedule: records.Schedule) -> dict[str, Any]:
    row = schedule_rows.trigger_row(trigger)
    url, name = "", ""
    if trigger.sweep_row is not None:
        url, name = f"/sweeps/{trigger.sweep_row}", f"sweep @{trigger.sweep_row}"
    elif trigger.job_row is not None:
        url, name = f"/jobs/{trigger.job_row}", f"job @{trigger.job_row}"
    return {
        **row,
        "local": schedule_rows.local_time(trigger.planned_at, schedule.tz),
        "kind": _kind(trigger),
        "word": trigger.verdict or _WORDS.get(trigger.state, trigger.state),
        "sentence": trigger.verdict_detail.get("sentence") or trigger.reason or "",
        "url": url,
        "submitted": name,
        "comparison": trigger.verdict_detail.get("comparison", ()),
    }


def _figures(
    triggers: Sequence[records.Trigger], schedule: records.Schedule
) -> list[figures.Figure]:
    """Return for each metric its ratio to what it was compared with, check by check."""
    checks = [trigger for trigger in triggers if trigger.verdict_detail.get("comparison")]
    if not checks:
        return []
    lines: dict[str, dict[str, list[tuple[int, Mapping[str, Any]]]]] = {}
    for number, trigger in enumerate(checks):
        for line in trigger.verdict_detail["comparison"]:
            label = " ".join(filter(None, (f"size {line['size']}", line["curve"])))
            of_metric = lines.setdefault(line["metric"], {})
            of_metric.setdefault(label, []).append((number, line))
    labels = [
        f"{trigger.planned_at.astimezone(schedule_rows.zone_of(schedule.tz)):%m-%d}"
        for trigger in checks
    ]
    ends = (0, len(checks) - 1)
    guide = figures.Series(label="no change", kind="guide", x=ends, y=(1.0, 1.0))
    return [
        figures.Figure(
            name=metric,
            title=f"{metric}, compared with earlier runs or the baseline",
            x_label="planned time",
            y_label=metric,
            series=[
                guide,
                *(
                    _series(label, points, colour)
                    for colour, (label, points) in enumerate(list(of_metric.items())[:_MAX_SERIES])
                ),
            ],
            sizes=(),
            ticks=range(len(checks)),
            x_labels=labels,
            is_share=True,
            from_zero=False,
        )
        for metric, of_metric in lines.items()
    ]


def _series(
    label: str, points: Sequence[tuple[int, Mapping[str, Any]]], colour: int
) -> figures.Series:
    ratios = [line["ratio"] for _, line in points]
    ends = [
        tuple(
            line["ratio"] if line[end] is None else line[end] for end in ("ratio_low", "ratio_high")
        )
        for _, line in points
    ]
    return figures.Series(
        label=label,
        kind="points",
        x=[number for number, _ in points],
        y=ratios,
        low=[low for low, _ in ends],
        high=[high for _, high in ends],
        colour=colour,
    )

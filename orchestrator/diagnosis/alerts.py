"""What is wrong with a job that runs: it stalled, became slow, its loss is no number. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import jobs

STALLED, SLOW, NAN_LOSS = "stalled", "slow", "nan_loss"
LOSSES = ("loss", "train_loss", "window_loss", "val_loss")
#: The first that a job tells is looked at.
THROUGHPUTS = ("window_throughput", "throughput", "total_throughput", "tokens_per_second")
#: A job is slow when the median of its newest windows is below the share of that of those before.
_NEWEST = 3
_BEFORE = 5
#: And no longer when it is this much above it again: else it would come and go.
_MARGIN = 1.1
#: So many of each name and rank are needed.
READINGS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What counts as wrong; `[alerts]` in the spec, else in the profile."""

    #: no new line for so long; 0: never
    stalled_minutes: int = 30
    #: throughput below this of its own median; 0: never
    slow_percent: int = 50
    #: a loss that is NaN or infinite
    nan_loss: bool = True

    @classmethod
    def of(cls, *given: jobs.Alerts) -> Rules:
        """Return the rules that these say, the first the strongest."""
        found: dict[str, Any] = {}
        for layer in reversed(given):
            said = dataclasses.asdict(layer).items()
            found |= {name: value for name, value in said if value is not None}
        return cls(**found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of a job just now."""

    #: when its log or its metrics were last written to; none: nothing of it can be seen from here
    written_at: datetime.datetime | None
    #: how long ago that was, by the clock that stamped it
    silent_seconds: float
    #: its newest losses and throughputs, oldest first
    metrics: Sequence[jobs.Metric]


def judge(
    job: jobs.Job, rules: Rules, seen: Seen, *, now: datetime.datetime
) -> tuple[tuple[jobs.Alert, ...], tuple[jobs.JobEvent, ...]]:
    """Return the alerts of a job that runs, and an event for each that came or went.

    One that goes on stays as it was first told.
    """
    before = {alert.rule: alert for alert in job.current_alerts}
    mine = [metric for metric in seen.metrics if metric.attempt == job.attempt]
    found = {
        # What cannot be seen just now has not changed.
        STALLED: before.get(STALLED) if seen.written_at is None else _stalled(job, rules, seen),
        SLOW: _slow(job, rules, mine, now, again=SLOW in before),
        NAN_LOSS: _nan_loss(job, rules, mine, now),
    }
    kept = tuple(before.get(rule, alert) for rule, alert in found.items() if alert is not None)
    return kept, tuple(_events(job, before, found, now))


def _events(
    job: jobs.Job,
    before: Mapping[str, jobs.Alert],
    found: Mapping[str, jobs.Alert | None],
    now: datetime.datetime,
) -> Iterator[jobs.JobEvent]:
    for rule, alert in found.items():
        if (alert is None) == (rule not in before):
            continue
        kind = "alert" if alert is not None else "recovered"
        detail = f"{rule}: {alert.detail}" if alert is not None else f"no longer {_WORDS[rule]}"
        yield jobs.JobEvent(at=now, kind=kind, attempt=job.attempt, source="alerts", detail=detail)


_WORDS = {STALLED: "stalled", SLOW: "slow", NAN_LOSS: "without a loss that is a number"}


def _stalled(job: jobs.Job, rules: Rules, seen: Seen) -> jobs.Alert | None:
    limit_seconds = rules.stalled_minutes * 60
    if seen.written_at is None or not limit_seconds or seen.silent_seconds < limit_seconds:
        return None
    minutes = round(seen.silent_seconds / 60)
    plural = "" if minutes == 1 else "s"
    told = f"no new line in its log or its metrics for {minutes} minute{plural}"
    return _alert(job, STALLED, seen.written_at, told)


def _slow(
    job: jobs.Job,
    rules: Rules,
    metrics: Sequence[jobs.Metric],
    now: datetime.datetime,
    *,
    again: bool,
) -> jobs.Alert | None:
    windows = _windows(metrics)
    if not rules.slow_percent or len(windows) < _NEWEST + _BEFORE:
        return None
    newest = statistics.median([one.value for one in windows[-_NEWEST:]])
    usual = statistics.median([one.value for one in windows[:-_NEWEST]])
    limit = rules.slow_percent / 100.0 * (_MARGIN if again else 1.0)
    if usual <= 0.0 or newest >= usual * limit:
        return None
    unit = f" {windows[-1].unit}" if windows[-1].unit else ""
    share = f"{newest / usual * 100:.0f} %"
    told = f"{windows[-1].name} is {newest:.4g}{unit}, {share} of its median {usual:.4g}"
    return _alert(job, SLOW, windows[-_NEWEST].time or now, told)


def _windows(metrics: Sequence[jobs.Metric]) -> list[jobs.Metric]:
    """Return one rank's throughputs by one name from one source, oldest first."""
    for name in THROUGHPUTS:
        named = [one for one in metrics if one.name == name and math.isfinite(one.value)]
        if named:
            last = min(named, key=lambda one: one.rank or 0)
            like = (last.rank, named[-1].source, named[-1].unit)
            series = [one for one in named if (one.rank, one.source, one.unit) == like]
            # What has neither step nor epoch is of the whole run.
            parts = [one for one in series if one.step is not None or one.epoch is not None]
            return parts or series
    return []


def _nan_loss(
    job: jobs.Job, rules: Rules, metrics: Sequence[jobs.Metric], now: datetime.datetime
) -> jobs.Alert | None:
    newest = {(one.name, one.rank): one for one in metrics if one.name in LOSSES}
    bad = [one for one in newest.values() if not math.isfinite(one.value)]
    if not bad or not rules.nan_loss:
        return None
    first = bad[0]
    at = f" at step {first.step}" if first.step is not None else ""
    at = at or (f" in epoch {first.epoch}" if first.epoch is not None else "")
    value = "NaN" if math.isnan(first.value) else f"{first.value}"
    return _alert(job, NAN_LOSS, first.time or now, f"{first.name} is {value}{at}")


def _alert(job: jobs.Job, rule: str, since: datetime.datetime, detail: str) -> jobs.Alert:
    return jobs.Alert(rule=rule, attempt=job.attempt, since=since, detail=detail)

"""Alerts about running jobs: no output, slow, loss NaN. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
from collections.abc import Sequence
from typing import Any

from orchestrator import jobs

STALLED, SLOW, NAN_LOSS = "stalled", "slow", "nan_loss"
LOSSES = ("loss", "train_loss", "window_loss", "val_loss")
#: In order of preference.
THROUGHPUTS = ("window_throughput", "throughput", "total_throughput", "tokens_per_second")
#: A job is slow if the median of its last values is below a share of that of the earlier ones.
_LAST_VALUES = 3
_MIN_EARLIER_VALUES = 5
#: The alert ends at this multiple of the share, so that it does not come and go.
_HYSTERESIS = 1.1
#: Values that are needed per metric and rank.
MAX_VALUES = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Thresholds; `[alerts]` in the spec, else in the profile."""

    #: 0: no alert
    stalled_minutes: int = 30
    #: of the job's own median throughput; 0: no alert
    slow_percent: int = 50
    nan_loss: bool = True

    @classmethod
    def of(cls, *alerts: jobs.Alerts) -> Rules:
        """Return the thresholds of several tables; the first table takes precedence."""
        values: dict[str, Any] = {}
        for table in reversed(alerts):
            fields = dataclasses.asdict(table).items()
            values |= {name: value for name, value in fields if value is not None}
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """What is visible of a running job."""

    #: last write to its log or its metrics; None: not visible from this host
    written_at: datetime.datetime | None
    #: time since then, by the clock of the file system
    silent_seconds: float
    #: its last losses and throughputs, oldest first
    metrics: Sequence[jobs.Metric]


def judge(
    job: jobs.Job, rules: Rules, observation: Observation, *, now: datetime.datetime
) -> tuple[tuple[jobs.Alert, ...], tuple[jobs.JobEvent, ...]]:
    """Return the alerts of a running job, and an event for each alert that began or ended.

    An alert that continues keeps its first text.
    """
    before = {alert.rule: alert for alert in job.current_alerts}
    metrics = [metric for metric in observation.metrics if metric.attempt == job.attempt]
    is_visible = observation.written_at is not None
    alerts = {
        STALLED: _stalled(job, rules, observation) if is_visible else before.get(STALLED),
        SLOW: _slow(job, rules, metrics, now, is_slow=SLOW in before),
        NAN_LOSS: _nan_loss(job, rules, metrics, now),
    }
    ended = {STALLED: "no longer stalled", SLOW: "no longer slow", NAN_LOSS: "loss is finite again"}
    events = [
        jobs.JobEvent(
            at=now,
            kind="recovered" if alert is None else "alert",
            attempt=job.attempt,
            source="alerts",
            detail=ended[rule] if alert is None else f"{rule}: {alert.detail}",
        )
        for rule, alert in alerts.items()
        if (alert is not None) != (rule in before)
    ]
    current = [before.get(rule, alert) for rule, alert in alerts.items() if alert is not None]
    return tuple(current), tuple(events)


def _stalled(job: jobs.Job, rules: Rules, observation: Observation) -> jobs.Alert | None:
    limit_seconds, seconds = rules.stalled_minutes * 60, observation.silent_seconds
    if observation.written_at is None or not limit_seconds or seconds < limit_seconds:
        return None
    minutes = round(seconds / 60)
    detail = f"no output in its log or metrics for {minutes} minute{'' if minutes == 1 else 's'}"
    return _alert(job, STALLED, observation.written_at, detail)


def _slow(
    job: jobs.Job,
    rules: Rules,
    metrics: Sequence[jobs.Metric],
    now: datetime.datetime,
    *,
    is_slow: bool,
) -> jobs.Alert | None:
    values = _throughputs(metrics)
    if not rules.slow_percent or len(values) < _LAST_VALUES + _MIN_EARLIER_VALUES:
        return None
    last = statistics.median([metric.value for metric in values[-_LAST_VALUES:]])
    usual = statistics.median([metric.value for metric in values[:-_LAST_VALUES]])
    share = rules.slow_percent / 100.0 * (_HYSTERESIS if is_slow else 1.0)
    if usual <= 0.0 or last >= usual * share:
        return None
    unit = f" {values[-1].unit}" if values[-1].unit else ""
    percent = f"{last / usual * 100:.0f} %"
    detail = f"{values[-1].name} is {last:.4g}{unit}, {percent} of its median {usual:.4g}"
    return _alert(job, SLOW, values[-_LAST_VALUES].time or now, detail)


def _throughputs(metrics: Sequence[jobs.Metric]) -> list[jobs.Metric]:
    """Return the throughputs of one metric, one rank and one source, oldest first."""
    for name in THROUGHPUTS:
        named = [each for each in metrics if each.name == name and math.isfinite(each.value)]
        if not named:
            continue
        rank = min(named, key=lambda metric: metric.rank or 0).rank
        key = (rank, named[-1].source, named[-1].unit)
        series = [each for each in named if (each.rank, each.source, each.unit) == key]
        # A value without step and epoch is about the whole run.
        steps = [each for each in series if each.step is not None or each.epoch is not None]
        return steps or series
    return []


def _nan_loss(
    job: jobs.Job, rules: Rules, metrics: Sequence[jobs.Metric], now: datetime.datetime
) -> jobs.Alert | None:
    last = {(metric.name, metric.rank): metric for metric in metrics if metric.name in LOSSES}
    bad = next((metric for metric in last.values() if not math.isfinite(metric.value)), None)
    if bad is None or not rules.nan_loss:
        return None
    where = ""
    if bad.step is not None:
        where = f" at step {bad.step}"
    elif bad.epoch is not None:
        where = f" in epoch {bad.epoch}"
    value = "NaN" if math.isnan(bad.value) else f"{bad.value}"
    return _alert(job, NAN_LOSS, bad.time or now, f"{bad.name} is {value}{where}")


def _alert(job: jobs.Job, rule: str, since: datetime.datetime, detail: str) -> jobs.Alert:
    return jobs.Alert(rule=rule, attempt=job.attempt, since=since, detail=detail)

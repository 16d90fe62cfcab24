"""Alerts about running jobs: no output, slow, a straggling rank, loss NaN. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
from collections.abc import Sequence
from typing import Any, TypeAlias

from orchestrator import jobs

STALLED, SLOW, STRAGGLER, NAN_LOSS = "stalled", "slow", "straggler", "nan_loss"
_ENDED = {
    STALLED: "no longer stalled",
    SLOW: "no longer slow",
    STRAGGLER: "all ranks are equally fast again",
    NAN_LOSS: "loss is finite again",
}
LOSSES = ("loss", "train_loss", "window_loss", "val_loss")
#: In order of preference.
THROUGHPUTS = ("window_throughput", "throughput", "total_throughput", "tokens_per_second")
#: Times of each rank, in order of preference.
RANK_TIMES = ("compute_time", "step_time")
#: A job is slow if the median of its last values is below a share of that of the earlier ones.
_LAST_VALUES = 3
_MIN_EARLIER_VALUES = 5
#: The alert ends at this multiple of the share, so that it does not come and go.
_HYSTERESIS = 1.1
#: Metrics that are needed, and how many values of each rank. Of many ranks few values are needed.
VALUES = {(*LOSSES, *THROUGHPUTS): 24, RANK_TIMES: _LAST_VALUES}

#: Since when the alert holds (None: since now), and a sentence.
_Result: TypeAlias = tuple[datetime.datetime | None, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Thresholds; `[alerts]` in the spec, else in the profile."""

    #: 0: no alert
    stalled_minutes: int = 30
    #: of the job's own median throughput; 0: no alert
    slow_percent: int = 50
    #: by which a rank's steps take longer than those of the others; 0: no alert
    straggler_percent: int = 50
    nan_loss: bool = True

    @classmethod
    def of(cls, *alerts: jobs.Alerts) -> Rules:
        """Return the thresholds of several tables; the first table takes precedence."""
        values: dict[str, Any] = {}
        for table in reversed(alerts):
            fields = dataclasses.asdict(table).items()
            values |= {name: value for name, value in fields if value is not None}
        return cls(**values)


def judge(
    job: jobs.Job,
    rules: Rules,
    metrics: Sequence[jobs.Metric],
    *,
    written_at: datetime.datetime | None,
    silent_seconds: float,
    now: datetime.datetime,
    hosts: Sequence[str] = (),
) -> tuple[tuple[jobs.Alert, ...], tuple[jobs.JobEvent, ...]]:
    """Return the alerts of a running job, and an event for each alert that began or ended.

    An alert that continues keeps its first text. `metrics` are the last losses, throughputs and
    times of ranks, oldest first. `written_at` is the last write to the log or the metrics, None if
    it is not visible from this host; `silent_seconds` is the time since then by the file system's
    clock. `hosts`: of the job, in the order of their ranks.
    """
    before = {alert.rule: alert for alert in job.current_alerts}
    metrics = [metric for metric in metrics if metric.attempt == job.attempt]
    share = rules.slow_percent / 100 * (_HYSTERESIS if SLOW in before else 1.0)
    results = {
        SLOW: _slow(metrics, share) if rules.slow_percent else None,
        STRAGGLER: None,
        NAN_LOSS: _nan_loss(metrics) if rules.nan_loss else None,
    }
    if rules.straggler_percent:
        share = rules.straggler_percent / 100 / (_HYSTERESIS if STRAGGLER in before else 1.0)
        results[STRAGGLER] = _straggler(metrics, 1.0 + share, hosts, has_gpus=bool(job.gpus))
    if written_at is not None:
        is_stalled = 0 < rules.stalled_minutes * 60 <= silent_seconds
        minutes = round(silent_seconds / 60)
        unit = "minute" if minutes == 1 else "minutes"
        detail = f"no output in its log or metrics for {minutes} {unit}"
        results = {STALLED: (written_at, detail) if is_stalled else None, **results}
    current = dict(before)
    events: list[jobs.JobEvent] = []
    for rule, result in results.items():
        if (result is not None) == (rule in before):
            continue
        kind, detail = "recovered", _ENDED[rule]
        if result is None:
            del current[rule]
        else:
            since, kind, detail = result[0] or now, "alert", f"{rule}: {result[1]}"
            alert = jobs.Alert(rule=rule, attempt=job.attempt, since=since, detail=result[1])
            current[rule] = alert
        events.append(
            jobs.JobEvent(at=now, kind=kind, attempt=job.attempt, source="alerts", detail=detail)
        )
    return tuple(current.values()), tuple(events)


def _slow(metrics: Sequence[jobs.Metric], share: float) -> _Result | None:
    values = _throughputs(metrics)
    if len(values) < _LAST_VALUES + _MIN_EARLIER_VALUES:
        return None
    last = statistics.median([metric.value for metric in values[-_LAST_VALUES:]])
    usual = statistics.median([metric.value for metric in values[:-_LAST_VALUES]])
    if usual <= 0.0 or last >= usual * share:
        return None
    unit = f" {values[-1].unit}" if values[-1].unit else ""
    percent = f"{last / usual * 100:.0f} %"
    detail = f"{values[-1].name} is {last:.4g}{unit}, {percent} of its median {usual:.4g}"
    return values[-_LAST_VALUES].time, detail


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


def _straggler(
    metrics: Sequence[jobs.Metric], factor: float, hosts: Sequence[str], *, has_gpus: bool
) -> _Result | None:
    """Compare the slowest rank with the median of the others, each by its last values."""
    for name in RANK_TIMES:
        by_rank: dict[int, list[jobs.Metric]] = {}
        for metric in metrics:
            if metric.name == name and metric.rank is not None and math.isfinite(metric.value):
                by_rank.setdefault(metric.rank, []).append(metric)
        last = {rank: values[-_LAST_VALUES:] for rank, values in by_rank.items()}
        if len(last) < 2 or any(len(values) < _LAST_VALUES for values in last.values()):
            continue
        times = {rank: statistics.median(v.value for v in values) for rank, values in last.items()}
        slowest = max(times, key=lambda rank: times[rank])
        others = statistics.median(time for rank, time in times.items() if rank != slowest)
        if others <= 0.0 or times[slowest] < others * factor:
            return None
        newest = last[slowest][-1]
        unit = f" {newest.unit}" if newest.unit else ""
        where = _place(slowest, newest.world_size or len(times), hosts, has_gpus=has_gpus)
        detail = (
            f"rank {slowest}{where} takes {times[slowest] / others:.1f} times as long as others"
        )
        return (
            last[slowest][0].time,
            f"{detail} ({name} {times[slowest]:.4g}{unit}, others {others:.4g})",
        )
    return None


def _place(rank: int, world_size: int, hosts: Sequence[str], *, has_gpus: bool) -> str:
    """Return host and GPU of a rank, if all hosts have the same number of consecutive ranks."""
    if not hosts or world_size % len(hosts) or rank >= world_size:
        return ""
    per_host = world_size // len(hosts)
    gpu = f", GPU {rank % per_host}," if has_gpus else ""
    return f" on {hosts[rank // per_host]}{gpu}"


def _nan_loss(metrics: Sequence[jobs.Metric]) -> _Result | None:
    last = {(metric.name, metric.rank): metric for metric in metrics if metric.name in LOSSES}
    bad = next((metric for metric in last.values() if not math.isfinite(metric.value)), None)
    if bad is None:
        return None
    where = ""
    if bad.step is not None:
        where = f" at step {bad.step}"
    elif bad.epoch is not None:
        where = f" in epoch {bad.epoch}"
    value = "NaN" if math.isnan(bad.value) else f"{bad.value}"
    return bad.time, f"{bad.name} is {value}{where}"

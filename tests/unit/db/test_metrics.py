"""Metrics in the database: values are read back unchanged, and queries filter them."""

from __future__ import annotations

import dataclasses
import datetime
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db import unit_of_work
from orchestrator import jobs, metrics
from orchestrator.controller.session import stores
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


def add_job(store: stores.Store, token: str = "abcd00000001") -> int:
    """Store a job; return its row."""
    submission = builders.make_submission(1, NOW, token=token, name="digits")
    with store.writing() as work:
        return work.jobs.add_submission(submission)[0].row


def metric(value: float = 1.5, **changes: object) -> jobs.Metric:
    record = jobs.Metric(name="loss", value=value, source="log:olivia", path="/r/1.out", line=3)
    return dataclasses.replace(record, **changes)  # type: ignore[arg-type]


def lines(*records: jobs.Metric) -> list[metrics.ParsedLine]:
    return [metrics.ParsedLine.of(record) for record in records]


def stored(work: unit_of_work.UnitOfWork, row: int, **query: object) -> list[jobs.Metric]:
    metric_query = metrics.MetricQuery(job_rows=[row], **query)  # type: ignore[arg-type]
    return work.metrics.by_job(metric_query).get(row, [])


def test_a_line_has_several_metrics(store: stores.Store) -> None:
    row = add_job(store)
    names = tuple((f"metric{number}", "s") for number in range(10))
    values = tuple(float(number) for number in range(9))
    whole = metrics.ParsedLine.of(metric(step=3, time=NOW))
    whole = whole._replace(names=names, values=(*values, math.inf))
    others = lines(metric(attempt=1), metric(line=4), metric(2.5), metric(rank=1), metric(rank=1))
    with store.writing() as work:
        assert work.metrics.add(row, [whole]) == 10
        assert work.metrics.add(row, others) == 5
        assert work.metrics.add(row, []) == 0
        result = stored(work, row)
        ids = work.metrics.ids(metrics.MetricQuery(job_rows=[row]))[row]
        assert [line.id for line in work.metrics.rows(ids)] == list(ids)
        assert work.metrics.names([row]) == ["loss", *sorted(name for name, _ in names)]
        assert list(work.metrics.of_file(row, "/r/2.out")) == []
    assert [(item.name, item.unit) for item in result[:10]] == list(names)
    assert [item.value for item in result[:10]] == [*values, math.inf]
    assert {(item.step, item.time, item.line) for item in result[:10]} == {(3, NOW, 3)}
    assert lines(*result[10:]) == others
    assert list(ids) == sorted(set(ids)) and len(ids) == 15


def test_nan_and_an_unknown_file(store: stores.Store) -> None:
    row = add_job(store)
    with store.writing() as work:
        assert work.metrics.add(row, lines(metric(math.nan), metric(path="", line=None))) == 2
        nan, unknown = stored(work, row)
    assert math.isnan(nan.value)
    assert (unknown.path, unknown.line) == ("", None)


def test_queries(store: stores.Store) -> None:
    row = add_job(store)
    other = add_job(store, "abcd00000002")
    result = [metric(step=step, line=step) for step in range(5)]
    result.append(metric(9.0, source="jsonl", path="/r/metrics.jsonl", step=4))
    result += [metric(name="acc", line=9), metric(attempt=1, line=10, step=7)]
    with store.writing() as work:
        work.metrics.add(row, lines(*result))
        work.metrics.add(other, lines(metric(step=1)))
        newest = work.metrics.ids(metrics.MetricQuery(job_rows=[row]))[row][-1]
        both = work.metrics.by_job(metrics.MetricQuery(job_rows=[other, row]))
        assert list(both) == [other, row] and len(both[other]) == 1
        assert work.metrics.by_job(metrics.MetricQuery(job_rows=[])) == {}
        assert work.metrics.by_job(metrics.MetricQuery(job_rows=range(row, 300_000))) == both

    def selected(**query: object) -> list[tuple[str, int | None]]:
        with store.reading() as work:
            return [(item.source, item.step) for item in stored(work, row, **query)]

    log = "log:olivia"
    assert len(selected()) == 8
    assert selected(source="jsonl") == [("jsonl", 4)]
    assert len(selected(source="log")) == len(selected(source=log)) == 7
    assert selected(prefer_jsonl=True) == [("jsonl", 4), (log, None), (log, 7)]
    assert selected(names=["acc"]) == [(log, None)]
    assert selected(attempt=1) == [(log, 7)]
    assert selected(first_step=3, last_step=4, source="log") == [(log, 3), (log, 4)]
    assert selected(last=1) == [(log, None), (log, 7)]
    assert selected(after=newest) == []
    assert selected(last=2, names=["loss"], prefer_jsonl=True) == [("jsonl", 4), (log, 7)]
    assert selected(every=3, names=["loss"]) == [(log, 0), (log, 3), (log, 7)]
    assert selected(points=2, names=["loss"]) == [(log, 0), (log, 7)]
    assert selected(points=1, names=["loss"]) == [(log, 7)]
    assert selected(first_epoch=0) == selected(since=NOW) == selected(rank=1) == []


def test_the_metrics_of_a_file_are_replaced(store: stores.Store) -> None:
    row, path = add_job(store), "/r/1.out"
    old = lines(metric(line=1), metric(line=2, time=NOW), metric(line=2, rank=1, epoch=1))
    other = metric(path="/r/2.out")
    with store.writing() as work:
        assert work.metrics.file_summary(row, path) == (0, False)
        work.metrics.add(row, [*old, *lines(other)])
        assert [*work.metrics.of_file(row, path)] == [old]
        assert work.metrics.file_summary(row, path) == (3, False)
        work.metrics.add(row, lines(metric(line=1)))
        assert work.metrics.file_summary(row, path) == (4, True)
        work.metrics.delete_file(row, path)
        assert stored(work, row) == [other]
        work.metrics.add(row, lines(metric(7.0)))
        assert stored(work, row) == [other, metric(7.0)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.floats(),
    step=st.none() | st.integers(-(2**63), 2**63 - 1),
    unit=st.text(st.characters(exclude_categories=["Cs"])),
    path=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_metric_can_be_stored(
    store: stores.Store, value: float, step: int | None, unit: str, path: str
) -> None:
    token = "any000000000"
    with store.reading() as work:
        result = work.jobs.of_submissions([token])
    row = result[0].row if result else add_job(store, token)
    with store.writing() as work:
        work.metrics.add(row, lines(metric(value, step=step, unit=unit, path=path)))
        (last,) = stored(work, row, names=["loss"], last=1)
    assert (last.source, last.step) == ("log:olivia", step)

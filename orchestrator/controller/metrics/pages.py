"""The numbers of jobs, page by page: whoever prints them may be slow, and holds up no writer."""

from __future__ import annotations

import array
import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence

from orchestrator import errors, jobs, metrics
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts

#: Rows of a page: some 5 MB.
PAGE_ROWS = 10_000


def read_new(context: contexts.Context, wanted: Sequence[jobs.Job]) -> None:
    """Read what the jobs' files got since the last look; a full disk leaves that out."""
    try:
        ingest.ingest_for_numbers(context, wanted)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"What the logs got since the last look is left out: {exc}")


def read_part(context: contexts.Context, wanted: Sequence[jobs.Job]) -> bool:
    """Read what one look may take of that; return whether there is more to read."""
    deadline = context.deadline.within(ingest.LOOK_SECONDS)
    try:
        return bool(ingest.ingest(context, wanted, deadline=deadline).unread)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"What the logs got since the last look is left out: {exc}")
        return False


def pages(
    context: contexts.Context, query: metrics.MetricQuery
) -> Iterator[list[metrics.MetricRow]]:
    """Yield the rows that are wanted: job by job in the query's order, in each as they were read.

    No transaction is open while a page is in use.
    """
    return newest(context, query, None)[1]


def newest(
    context: contexts.Context, query: metrics.MetricQuery, most: int | None
) -> tuple[int, Iterator[list[metrics.MetricRow]]]:
    """Return how many rows are wanted, and pages() of the newest so many (None: all) of them."""
    with context.store.reading() as work:
        found = work.metrics.ids(query)
    ids = array.array("q", itertools.chain.from_iterable(found.values()))
    count = len(ids)
    if most is not None and count > most:
        kept = set(heapq.nlargest(most, ids))
        ids = array.array("q", (number for number in ids if number in kept))
    places = {row: place for place, row in enumerate(found)}
    return count, _pages(context, ids, places)


def _pages(
    context: contexts.Context, ids: array.array[int], places: Mapping[int, int]
) -> Iterator[list[metrics.MetricRow]]:
    for start in range(0, len(ids), PAGE_ROWS):
        with context.store.reading() as work:
            rows = work.metrics.rows(ids[start : start + PAGE_ROWS])
        yield sorted(rows, key=lambda row: places[row.job_row]) if len(places) > 1 else rows


def thinned(query: metrics.MetricQuery, points: int) -> metrics.MetricQuery:
    """Return the query for at most so many of each name and rank."""
    return dataclasses.replace(query, points=min(points, query.points or points))


def names(context: contexts.Context, rows: Sequence[int]) -> list[str]:
    """Return the names that numbers of these jobs have."""
    with context.store.reading() as work:
        return work.metrics.names(rows)

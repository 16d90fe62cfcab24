"""Reads stored metrics page by page: a slow reader never blocks writers."""

from __future__ import annotations

import array
import heapq
import itertools
from collections.abc import Iterator, Sequence

from orchestrator import metrics
from orchestrator.controller.session import contexts

#: About 5 MB.
_PAGE_ROWS = 10_000


def pages(
    context: contexts.Context, query: metrics.MetricQuery
) -> Iterator[list[metrics.MetricRow]]:
    """Yield the selected metrics by job in the query's order, and in the order of reading.

    No transaction is open while a page is in use.
    """
    return newest(context, query, None)[1]


def newest(
    context: contexts.Context, query: metrics.MetricQuery, limit: int | None
) -> tuple[int, Iterator[list[metrics.MetricRow]]]:
    """Return the number of selected metrics, and pages() of the newest `limit` (None: all)."""
    with context.store.reading() as work:
        ids_by_job = work.metrics.ids(query)
    ids = array.array("q", itertools.chain.from_iterable(ids_by_job.values()))
    count = len(ids)
    if limit is not None and count > limit:
        kept = set(heapq.nlargest(limit, ids))
        ids = array.array("q", (number for number in ids if number in kept))
    return count, _pages(context, ids, list(ids_by_job))


def _pages(
    context: contexts.Context, ids: array.array[int], job_rows: Sequence[int]
) -> Iterator[list[metrics.MetricRow]]:
    order = {row: index for index, row in enumerate(job_rows)}
    for start in range(0, len(ids), _PAGE_ROWS):
        with context.store.reading() as work:
            rows = work.metrics.rows(ids[start : start + _PAGE_ROWS])
        yield sorted(rows, key=lambda row: order[row.job_row])

"""The list of jobs: what is listed, and how a line fits the terminal."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from rich import cells

from orchestrator import jobs
from orchestrator.controller.session import clock_check, contexts, queries
from orchestrator.rows import job_rows, row_values
from orchestrator.text import escaping

#: Submissions that are listed at first, and how many more at the end of the list.
PAGE = 200
_MAX_WORDS = 8
#: Live jobs, and those that were submitted or ended within this time.
AGES: Mapping[str, datetime.timedelta | None] = {
    "live": datetime.timedelta(0),
    "last day": queries.RECENT,
    "last 7 days": datetime.timedelta(days=7),
    "all": None,
}
#: Identifies a line while its job changes.
Key = tuple[object, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """Which jobs are listed, and in which order."""

    words: str = ""
    #: one of AGES
    age: str = "last day"
    #: one of jobs.ORDERS
    order: str = "submitted"
    descending: bool = True
    #: of submissions
    limit: int = PAGE

    def query(self, now: datetime.datetime) -> jobs.JobQuery:
        """Return which jobs match; the limit counts submissions."""
        age = AGES[self.age]
        return jobs.JobQuery(
            words=self.words.split()[:_MAX_WORDS],
            live_or_since=None if age is None else now - age,
            limit=self.limit,
        )

    def with_next_age(self) -> Filter:
        return dataclasses.replace(self, age=_next(list(AGES), self.age), limit=PAGE)

    def with_next_order(self) -> Filter:
        return dataclasses.replace(self, order=_next(jobs.ORDERS, self.order), limit=PAGE)


def _next(names: Sequence[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing:
    """The jobs that are listed."""

    groups: Sequence[jobs.JobGroup]
    #: of matching submissions, listed or not
    total: int
    #: of matching jobs
    counts: Mapping[jobs.JobState, int]
    #: why the states may be wrong
    messages: Sequence[str]
    #: there is no job at all
    is_empty: bool


def read(context: contexts.Context, shown: Filter) -> Listing:
    """Return what matches; Slurm is not asked. Raises OrchestratorError."""
    query = shown.query(context.clock.now())
    with context.store.reading() as work:
        lists = work.job_lists
        groups = lists.groups(query, order=shown.order, descending=shown.descending, offset=0)
        total = lists.number(query, is_folded=True)
        counts = lists.counts(query)
        first, slurm_error = queries.with_staleness(context, [group.first for group in groups])
        doubt = clock_check.stored_doubt(work)
        is_empty = not total and not work.jobs.find_rows(jobs.JobQuery(limit=1))
    return Listing(
        groups=[
            dataclasses.replace(group, first=job) for group, job in zip(groups, first, strict=True)
        ],
        total=total,
        counts=counts,
        messages=[escaping.one_line(text) for text in (slurm_error, doubt) if text],
        is_empty=is_empty,
    )


def key_of(group: jobs.JobGroup) -> Key:
    """Return what identifies a line in later lists."""
    return (group.first.row,) if group.count == 1 else group.first.fold_key


def jobs_of(
    context: contexts.Context, shown: Filter, groups: Iterable[jobs.JobGroup]
) -> list[jobs.Job]:
    """Return all jobs of these lines, as they are now."""
    selected: list[jobs.Job] = []
    with context.store.reading() as work:
        for group in groups:
            if group.count == 1:
                selected += work.jobs.by_row([group.first.row]).values()
                continue
            tasks = [
                task.row
                for task in work.jobs.of_submissions([group.first.token])
                if task.fold_key == group.first.fold_key
            ]
            # A filter may leave out tasks: those of other nodes.
            query = dataclasses.replace(shown.query(context.clock.now()), rows=tasks, limit=None)
            selected += reversed(work.jobs.find(query)) if tasks else []
    return selected


class Column(NamedTuple):
    """A column of the table; widths are in terminal cells."""

    title: str
    #: field of job_rows.group_line()
    name: str
    #: the cell is at most so wide; None: it takes what is left
    most: int | None
    #: the column with the lowest number is left out first; None: it stays
    drop: int | None = None
    align: Literal["left", "right"] = "left"


COLUMNS = (
    Column("JOB", "job_id", 18),
    Column("NAME", "name", 28),
    Column("STATE", "state", 14),
    Column("ELAPSED", "elapsed", 10, drop=5, align="right"),
    Column("LIMIT", "time_limit", 10, drop=2, align="right"),
    Column("GPUS", "gpus", 4, drop=3, align="right"),
    Column("NODES", "node_list", 16, drop=1),
    Column("REASON", "reason", None, drop=4),
)
#: column -> the order by it
ORDER_OF_COLUMN = {
    "job_id": "submitted",
    "name": "name",
    "state": "state",
    "elapsed": "started",
    "time_limit": "time_limit",
    "gpus": "gpus",
}
_GAP = 2
_MIN_REASON = 10
_SMALL_NAME = 16


def line_of(group: jobs.JobGroup, now: datetime.datetime) -> dict[str, str]:
    """Return the texts of a line by the names of the columns."""
    line = job_rows.group_line(group, now)
    return {
        column.name: escaping.one_line(row_values.cell(line[column.name])) for column in COLUMNS
    }


def widths(lines: Sequence[Mapping[str, str]], width: int) -> dict[Column, int]:
    """Return the columns that fit `width` terminal cells, and the width of each."""
    chosen = {column: _width(column, lines) for column in COLUMNS}
    empty = [
        column for column in chosen if column.drop and not any(line[column.name] for line in lines)
    ]
    name = COLUMNS[1]
    if _total(chosen) > width:
        for column in empty:
            del chosen[column]
    if _total(chosen) > width:
        chosen[name] = min(chosen[name], _SMALL_NAME)
    for column in sorted(COLUMNS, key=lambda column: column.drop or 0):
        if column.drop is not None and column in chosen and _total(chosen) > width:
            del chosen[column]
    last = COLUMNS[-1]
    if last in chosen:
        chosen[last] += max(0, width - _total(chosen))
    return chosen


def _width(column: Column, lines: Sequence[Mapping[str, str]]) -> int:
    if column.most is None:
        return _MIN_REASON
    longest = max((cells.cell_len(line[column.name]) for line in lines), default=0)
    # Two cells for the arrow of the order.
    return min(column.most, max(longest, len(column.title) + 2))


def _total(chosen: Mapping[Column, int]) -> int:
    return sum(chosen.values()) + _GAP * max(0, len(chosen) - 1)


def text_of(texts: Mapping[str, str], chosen: Mapping[Column, int]) -> str:
    """Return a line of the table, or its heading."""
    shown = (_fit(texts[column.name], width, column.align) for column, width in chosen.items())
    return (" " * _GAP).join(shown)


def heading(shown: Filter, chosen: Mapping[Column, int]) -> str:
    """Return the line above the table, with an arrow at the column of the order."""
    arrow = "▼" if shown.descending else "▲"
    return text_of(
        {
            column.name: f"{column.title} {arrow}"
            if ORDER_OF_COLUMN.get(column.name) == shown.order
            else column.title
            for column in COLUMNS
        },
        chosen,
    )


def _fit(content: str, width: int, align: str) -> str:
    if cells.cell_len(content) > width:
        return cells.set_cell_size(content, width - 1) + "…"
    padding = " " * (width - cells.cell_len(content))
    return padding + content if align == "right" else content + padding


def summary(listing: Listing, shown: Filter) -> str:
    """Return the line above the table."""
    parts = [f"{number} {state}" for state, number in sorted(listing.counts.items()) if number]
    sorted_by = f"by {shown.order.replace('_', ' ')}"
    return "  ".join([*parts, f"[{shown.age}]", sorted_by])

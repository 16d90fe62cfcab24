"""Clean-up: what refers to jobs, and the deletion of rows.

Deleting a row searches every table that can name it. `recoveries.next_job_row` and the columns of
`graph_nodes` have no index, but these tables are small.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import (
    ATTEMPT_ENVIRONMENTS,
    DEPENDENCIES,
    ENVIRONMENTS,
    JOB_EVENTS,
    JOBS,
    SUBMISSIONS,
)
from db.tables.metrics import METRIC_LINES, METRIC_SETS
from db.tables.service import GRAPH_NODES, GRAPHS, NOTICES, RECOVERIES, SCHEDULES, TRIGGERS
from db.tables.sweeps import SWEEP_POINTS, SWEEP_SHAPES, SWEEPS
from orchestrator import jobs
from orchestrator.prune import records

_JOB, _POINT, _NODE, _EVENT = JOBS.c, SWEEP_POINTS.c, GRAPH_NODES.c, JOB_EVENTS.c
_SUBMISSION, _DEPENDENCY = SUBMISSIONS.c, DEPENDENCIES.c
#: Tables with the specs that jobs are started from.
_WITH_SPECS = (SUBMISSIONS, SWEEPS, SWEEP_SHAPES, SCHEDULES, GRAPH_NODES)
#: `code.tree` of a spec, in JSON.
_TREE = re.compile(r'"tree": ?"([0-9a-f]{40,64})"')
#: Texts that are searched at a time.
_PART_ROWS = 500


class PruneStore(base.Store):
    def closure(self, rows: Collection[int], *, with_groups: bool) -> list[int]:
        """Return these jobs and all that go only together with them, oldest first.

        Tasks of one array, and jobs that continue one another; with_groups: also all jobs of their
        sweeps and graphs.
        """
        found: set[int] = set()
        new = set(rows)
        while new:
            found |= new
            of_new = base.among(_JOB.row, new)
            submissions = sa.select(_JOB.submission_id).where(of_new)
            earlier = sa.select(_JOB.continues).where(of_new)
            statements = [
                sa.select(_JOB.row).where(_JOB.submission_id.in_(submissions)),
                sa.select(_JOB.row).where(_JOB.row.in_(earlier)),
                sa.select(_JOB.row).where(base.among(_JOB.continues, new)),
            ]
            related = {row for statement in statements for row in self._scalars(statement)}
            if with_groups:
                sweeps, graphs = self.groups_of(new)
                related |= {*self._jobs_of(sweeps, graphs)}
            new = related - found
        return sorted(found)

    def groups_of(self, rows: Collection[int]) -> tuple[set[int], set[int]]:
        """Return the sweeps and graphs of these jobs, with the other sweeps of those graphs."""
        of_rows = base.among(_POINT.job_row, rows)
        sweeps = {*self._scalars(sa.select(_POINT.sweep_id).where(of_rows).distinct())}
        is_node = sa.or_(base.among(_NODE.job_row, rows), base.among(_NODE.sweep_id, sweeps))
        graphs = {*self._scalars(sa.select(_NODE.graph_id).where(is_node).distinct())}
        in_graphs = base.among(_NODE.graph_id, graphs), _NODE.sweep_id.is_not(None)
        return sweeps | {*self._scalars(sa.select(_NODE.sweep_id).where(*in_graphs))}, graphs

    def _jobs_of(self, sweeps: Collection[int], graphs: Collection[int]) -> list[int]:
        points = sa.select(_POINT.job_row).where(base.among(_POINT.sweep_id, sweeps))
        nodes = sa.select(_NODE.job_row).where(base.among(_NODE.graph_id, graphs))
        return [
            *self._scalars(points.where(_POINT.job_row.is_not(None))),
            *self._scalars(nodes.where(_NODE.job_row.is_not(None))),
        ]

    def groups(self, rows: Collection[int]) -> dict[int, frozenset[str]]:
        """Return the sweep and the graph of each of these jobs: "sweep 3", "graph 1"."""
        groups: dict[int, set[str]] = {}
        points = sa.select(_POINT.job_row, _POINT.sweep_id)
        for row, sweep in self._rows(points.where(base.among(_POINT.job_row, rows))):
            groups.setdefault(row, set()).add(f"sweep {sweep}")
        nodes = sa.select(_NODE.job_row, _NODE.graph_id)
        for row, graph in self._rows(nodes.where(base.among(_NODE.job_row, rows))):
            groups.setdefault(row, set()).add(f"graph {graph}")
        in_sweeps = sa.select(_POINT.job_row, _NODE.graph_id).join(
            GRAPH_NODES, _NODE.sweep_id == _POINT.sweep_id
        )
        for row, graph in self._rows(in_sweeps.where(base.among(_POINT.job_row, rows))):
            groups.setdefault(row, set()).add(f"graph {graph}")
        return {row: frozenset(names) for row, names in groups.items()}

    def graphs_of(self, rows: Collection[int]) -> list[int]:
        """Return the graphs with a node for one of these jobs or for the sweep of one of them."""
        sweeps = sa.select(_POINT.sweep_id).where(base.among(_POINT.job_row, rows))
        is_node = sa.or_(base.among(_NODE.job_row, rows), _NODE.sweep_id.in_(sweeps))
        statement = sa.select(_NODE.graph_id).where(is_node).distinct()
        return self._scalars(statement.order_by(_NODE.graph_id))

    def dependents(self, rows: Collection[int]) -> dict[int, set[int]]:
        """Return by row the jobs that depend on each of these jobs, or on its sweep."""
        on_job = sa.select(_DEPENDENCY.on_job, _DEPENDENCY.job_row)
        on_turned = sa.select(_DEPENDENCY.turned_to, _DEPENDENCY.job_row)
        on_sweep = sa.select(_POINT.job_row, _DEPENDENCY.job_row).join(
            DEPENDENCIES, _DEPENDENCY.on_sweep == _POINT.sweep_id
        )
        dependents: dict[int, set[int]] = {}
        for statement in (
            on_job.where(base.among(_DEPENDENCY.on_job, rows)),
            on_turned.where(base.among(_DEPENDENCY.turned_to, rows)),
            on_sweep.where(base.among(_POINT.job_row, rows)),
        ):
            for row, dependent in self._rows(statement):
                dependents.setdefault(row, set()).add(dependent)
        return dependents

    def live_texts(self) -> Iterator[str]:
        """Yield the specs and scripts of live and deferred jobs, and the specs of schedules.

        These may name files in the run folder of another job.
        """
        is_live = sa.or_(_JOB.settled.is_(False), _JOB.resend_at.is_not(None))
        live = sa.select(_JOB.submission_id).where(is_live)
        is_stored = SCHEDULES.c.state.in_(("active", "paused"))
        for statement in (
            sa.select(_SUBMISSION.spec).where(_SUBMISSION.id.in_(live)),
            sa.select(_SUBMISSION.script).where(_SUBMISSION.id.in_(live)),
            self._raw(SCHEDULES.c.spec).where(is_stored),
        ):
            yield from self._texts(statement)

    def group_texts(self, sweeps: Collection[int], graphs: Collection[int]) -> Iterator[str]:
        """Yield the specs of these sweeps and graphs."""
        of_sweeps = base.among(SWEEPS.c.id, sweeps)
        yield from self._texts(self._raw(SWEEPS.c.spec).where(of_sweeps))
        yield from self._texts(self._raw(_NODE.spec).where(base.among(_NODE.graph_id, graphs)))

    def trees(self) -> set[str]:
        """Return the trees of code that a stored spec names."""
        trees: set[str] = set()
        for column in (table.c.spec for table in _WITH_SPECS):
            named = self._raw(column).where(sa.cast(column, sa.Text).like('%"tree"%'))
            for text in self._texts(named):
                trees.update(_TREE.findall(text))
        return trees

    def _raw(self, column: sa.Column[Any]) -> sa.Select[Any]:
        """Return a selection of a column with JSON as it is stored."""
        return sa.select(sa.type_coerce(column, sa.Text()))

    def _texts(self, statement: sa.Select[Any]) -> Iterator[str]:
        for part in self._connection.execute(statement).partitions(_PART_ROWS):
            for (text,) in part:
                yield text

    def unfinished_sweeps(self) -> list[int]:
        """Return the open sweeps with a point that has no job or whose job has not ended."""
        is_over = sa.and_(
            _JOB.state.in_(jobs.TERMINAL - {jobs.JobState.NOT_SUBMITTED}),
            sa.or_(_JOB.recovers.is_not(True), _JOB.state == "COMPLETED"),
        )
        statement = (
            sa.select(_POINT.sweep_id)
            .join(SWEEPS, SWEEPS.c.id == _POINT.sweep_id)
            .outerjoin(JOBS, _JOB.row == _POINT.job_row)
            .where(SWEEPS.c.state == "open", sa.or_(_JOB.row.is_(None), ~is_over))
        )
        return self._scalars(statement.distinct().order_by(_POINT.sweep_id))

    def run_dirs(self) -> list[str]:
        return self._scalars(sa.select(_SUBMISSION.run_dir).distinct())

    def marks(self, rows: Collection[int]) -> dict[int, records.Mark]:
        """Return by row the newest mark of each of these jobs that has one."""
        statement = sa.select(_EVENT.job_row, _EVENT.at, _EVENT.detail).where(
            _EVENT.kind == records.EVENT, base.among(_EVENT.job_row, rows)
        )
        return {
            row: records.Mark(at=at, detail=detail)
            for row, at, detail in self._rows(statement.order_by(_EVENT.id))
        }

    def asked_since(self, rows: Collection[int], since: datetime.datetime) -> set[int]:
        """Return those of the jobs that Slurm was asked to change since this time."""
        is_request = _EVENT.kind == "ask", _EVENT.detail.like(f"%{records.REQUESTED}")
        of_rows = base.among(_EVENT.job_row, rows), _EVENT.at >= since
        return {*self._scalars(sa.select(_EVENT.job_row).where(*of_rows, *is_request))}

    def marked_for_deletion(self) -> list[int]:
        """Return the jobs whose rows an interrupted call did not delete completely."""
        is_mark = _EVENT.kind == records.EVENT, _EVENT.detail == records.ROWS
        return self._scalars(sa.select(_EVENT.job_row).where(*is_mark).distinct())

    def claim(self, versions: Mapping[int, int]) -> bool:
        """Give jobs a new version, so that changes based on an older view of them are refused.

        False, and nothing is changed, if one of them has another version or is gone.
        """
        if not self.are_unchanged(versions):
            return False
        self._update(JOBS, {"version": _JOB.version + 1}, base.among(_JOB.row, versions))
        return True

    def are_unchanged(self, versions: Mapping[int, int]) -> bool:
        is_chosen = base.among(_JOB.row, versions)
        # Two numbers instead of a row for each job: versions only grow.
        sums = sa.func.count(), sa.func.coalesce(sa.func.sum(_JOB.version), 0)
        stored = self._connection.execute(sa.select(*sums).where(is_chosen)).one()
        return tuple(stored) == (len(versions), sum(versions.values()))

    def delete_details(self, rows: Collection[int], limit: int) -> int:
        """Delete at most so many metrics and events of these jobs; return how many.

        Marks stay, so that an interrupted deletion is known.
        """
        sets = sa.select(METRIC_SETS.c.id).where(base.among(METRIC_SETS.c.job_row, rows))
        lines = sa.select(METRIC_LINES.c.id).where(METRIC_LINES.c.set_id.in_(sets)).limit(limit)
        deleted = self._delete(METRIC_LINES, METRIC_LINES.c.id.in_(lines))
        if deleted < limit:
            of_rows = base.among(_EVENT.job_row, rows), _EVENT.kind != records.EVENT
            events = sa.select(_EVENT.id).where(*of_rows).limit(limit - deleted)
            deleted += self._delete(JOB_EVENTS, _EVENT.id.in_(events))
        return deleted

    def delete_groups(self, sweeps: Collection[int], graphs: Collection[int], limit: int) -> bool:
        """Delete at most so many points of these sweeps; return whether there are more.

        With the last ones the sweeps and graphs go, and links to the sweeps; triggers and notices
        stay. Points with a job, from which a later call finds the sweep, are the last.
        """
        of_sweeps = base.among(_POINT.sweep_id, sweeps)
        count = self._scalar(int, sa.select(sa.func.count()).where(of_sweeps)) or 0
        if count > limit:
            first = sa.select(_POINT.sweep_id, _POINT.number).where(of_sweeps)
            first = first.order_by(_POINT.job_row.is_not(None)).limit(limit)
            self._delete(SWEEP_POINTS, sa.tuple_(_POINT.sweep_id, _POINT.number).in_(first))
            return True
        self._delete(SWEEP_POINTS, of_sweeps)
        self._delete(GRAPH_NODES, base.among(_NODE.graph_id, graphs))
        self._delete(GRAPHS, base.among(GRAPHS.c.id, graphs))
        for table in (TRIGGERS, NOTICES):
            self._update(table, {"sweep_id": None}, base.among(table.c.sweep_id, sweeps))
        self._delete(DEPENDENCIES, base.among(_DEPENDENCY.on_sweep, sweeps))
        self._delete(SWEEP_SHAPES, base.among(SWEEP_SHAPES.c.sweep_id, sweeps))
        self._delete(SWEEPS, base.among(SWEEPS.c.id, sweeps))
        return False

    def delete_jobs(self, rows: Collection[int]) -> None:
        """Delete jobs, links to them, and submissions without any job left.

        What belongs to a job is deleted with it (foreign keys). Triggers and notices stay. Delete a
        job that continues another one not after that one.
        """
        submissions = self._scalars(
            sa.select(_JOB.submission_id).where(base.among(_JOB.row, rows)).distinct()
        )
        for column in (_DEPENDENCY.on_job, _DEPENDENCY.turned_to):
            self._delete(DEPENDENCIES, base.among(column, rows))
        for column in (TRIGGERS.c.job_row, NOTICES.c.job_row, RECOVERIES.c.next_job_row):
            self._update(column.table, {column.name: None}, base.among(column, rows))
        self._delete(JOBS, base.among(_JOB.row, rows))
        has_jobs = sa.exists().where(_JOB.submission_id == _SUBMISSION.id)
        self._delete(SUBMISSIONS, base.among(_SUBMISSION.id, submissions), ~has_jobs)

    def delete_environments(self, limit: int) -> int:
        """Delete at most so many environments that no attempt names; return how many."""
        number = ENVIRONMENTS.c.id
        is_named = sa.exists().where(ATTEMPT_ENVIRONMENTS.c.environment_id == number)
        unused = sa.select(number).where(~is_named).limit(limit)
        return self._delete(ENVIRONMENTS, number.in_(unused))

    def _delete(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
        return self._connection.execute(sa.delete(table).where(*conditions)).rowcount

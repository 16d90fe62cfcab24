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
from db.tables.jobs import DEPENDENCIES, JOB_EVENTS, JOBS, SUBMISSIONS
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
                sweeps, graphs = self._groups_of(new)
                related |= {*self._jobs_of(sweeps, graphs)}
            new = related - found
        return sorted(found)

    def _groups_of(self, rows: Collection[int]) -> tuple[set[int], set[int]]:
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

    def tokens(self, tokens: Collection[str]) -> set[str]:
        """Return those of the tokens that are stored."""
        is_known = base.among(_SUBMISSION.token, tokens)
        return {*self._scalars(sa.select(_SUBMISSION.token).where(is_known))}

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
        statement = sa.select(_JOB.row, _JOB.version).where(base.among(_JOB.row, versions))
        return self._pairs(statement) == dict(versions)

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

    def delete_groups(self, rows: Collection[int]) -> None:
        """Delete the sweeps and graphs of these jobs, and links to the jobs and sweeps.

        Triggers and notices stay, without the link.
        """
        sweeps, graphs = self._groups_of(rows)
        self._delete(GRAPH_NODES, base.among(_NODE.graph_id, graphs))
        self._delete(GRAPHS, base.among(GRAPHS.c.id, graphs))
        for table in (TRIGGERS, NOTICES):
            self._update(table, {"job_row": None}, base.among(table.c.job_row, rows))
            self._update(table, {"sweep_id": None}, base.among(table.c.sweep_id, sweeps))
        self._delete(DEPENDENCIES, base.among(_DEPENDENCY.on_sweep, sweeps))
        self._delete(SWEEP_POINTS, base.among(_POINT.sweep_id, sweeps))
        self._delete(SWEEP_SHAPES, base.among(SWEEP_SHAPES.c.sweep_id, sweeps))
        self._delete(SWEEPS, base.among(SWEEPS.c.id, sweeps))

    def delete_jobs(self, rows: Collection[int]) -> None:
        """Delete jobs, and submissions without any job left.

        What belongs to a job is deleted with it (foreign keys). Delete a job that continues another
        one not after that one.
        """
        submissions = self._scalars(
            sa.select(_JOB.submission_id).where(base.among(_JOB.row, rows)).distinct()
        )
        for column in (_DEPENDENCY.on_job, _DEPENDENCY.turned_to):
            self._delete(DEPENDENCIES, base.among(column, rows))
        next_row = RECOVERIES.c.next_job_row
        self._update(RECOVERIES, {"next_job_row": None}, base.among(next_row, rows))
        self._delete(JOBS, base.among(_JOB.row, rows))
        has_jobs = sa.exists().where(_JOB.submission_id == _SUBMISSION.id)
        self._delete(SUBMISSIONS, base.among(_SUBMISSION.id, submissions), ~has_jobs)

    def _delete(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
        return self._connection.execute(sa.delete(table).where(*conditions)).rowcount

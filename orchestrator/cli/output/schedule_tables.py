"""Tables of schedules and their triggers, and messages about who handles them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.cli.output import Column
from orchestrator.controller.schedules import management
from orchestrator.controller.session import contexts
from orchestrator.rows import job_rows, schedule_rows
from orchestrator.schedules import records

SCHEDULE_COLUMNS = (
    Column("name", "name"),
    Column("state"),
    Column("cron", drop=4),
    Column("tz", drop=2),
    Column("kind", drop=1),
    Column("next"),
    Column("last", drop=3),
    Column("outcome"),
)
TRIGGER_COLUMNS = (
    Column("planned"),
    Column("state"),
    Column("of", drop=2),
    Column("verdict", drop=1),
    Column("reason", "text"),
)

_START_CONTROLLER = (
    "Start one: `orchestrator schedule install --cron --write`, or `orchestrator serve`."
)


def print_schedules(summaries: Sequence[management.Summary], form: str) -> None:
    rows = list(map(schedule_rows.schedule_row, summaries))
    output.print_rows("schedules", rows, SCHEDULE_COLUMNS, form, line=_schedule_line)


def _schedule_line(row: output.Row) -> output.Row:
    last, tz = row["last"] or {}, row["tz"]
    return {
        **row,
        "next": schedule_rows.local_time(row["next_at"], tz),
        "last": schedule_rows.local_time(last.get("planned_at"), tz),
        "outcome": last.get("verdict") or last.get("state"),
    }


def print_triggers(triggers: Sequence[records.Trigger], tz: str, form: str) -> None:
    """Print triggers; all formats but JSON show times in the time zone `tz`."""

    def line(row: output.Row) -> output.Row:
        return {
            "planned": schedule_rows.local_time(row["planned_at"], tz)
            + (" by hand" if row["by_hand"] else ""),
            "state": row["state"],
            "of": job_rows.reference_to(row["sweep"], row["job"]),
            "verdict": row["verdict"],
            "reason": row["verdict_detail"].get("sentence") or row["reason"],
        }

    output.print_rows(
        "firings", list(map(schedule_rows.trigger_row, triggers)), TRIGGER_COLUMNS, form, line
    )


def note_controller(
    context: contexts.Context, stored: Sequence[records.Schedule], *, with_last_pass: bool = False
) -> None:
    """Print a message if no controller handles these schedules."""
    from orchestrator.controller.service import health

    state = health.examine(context.store, context.configuration.state_dir, context.clock.now())
    newest = state.newest
    if state.lease is None or not state.lease.fence:
        output.note(f"No controller is running, so schedules will not fire. {_START_CONTROLLER}")
        return
    is_tick = newest is None or newest.command != "serve"
    late_seconds = health.TICKS_LATE_SECONDS if is_tick else health.LATE_SECONDS
    overlooked = management.overdue(context, stored, late_seconds=late_seconds)
    if messages := [*state.problems, *overlooked]:
        # A controller of which a step fails needs no second one.
        has_failing_step = newest is not None and newest.failing_since is not None
        if overlooked or not has_failing_step:
            messages.append(_START_CONTROLLER)
        output.note(" ".join(messages))
    elif with_last_pass and newest is not None:
        output.note(health.last_pass_message(newest))

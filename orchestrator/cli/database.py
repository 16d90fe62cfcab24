"""orchestrator db."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.session import contexts, stores
from orchestrator.rows import row_values

_BACKUP_FIELDS = ("path", "made_at", "size_bytes")
_BACKUP_COLUMNS = (
    Column("path", "parts"),
    Column("made_at"),
    Column("size_bytes", drop=1),
)


database_commands = commands.Group(
    "db", help="Check, back up, restore, upgrade or move the database."
)


@database_commands.command("path", 'sqlite3 "$(orchestrator db path)" .tables', changes="nothing")
def print_path(ctx: click.Context) -> None:
    """Print the location of the database.

    A file, or the URL of a server without the password.
    """
    click.echo(stores.of(session.configuration_of(ctx)).shown_name)


@database_commands.command("upgrade", "orchestrator db upgrade", changes="other")
def upgrade(context: contexts.Context) -> None:
    """Upgrade the database to this version's schema.

    An SQLite file is backed up first. An upgrade of a PostgreSQL database succeeds completely or
    changes nothing; to be able to return to an older version, run `orchestrator db backup` before.
    """
    with session.progress("Upgrading the database"):
        before, after, backup = context.store.upgrade()
    if before == after:
        output.note(f"{context.store.shown_name} is up to date (schema {after}).")
        return
    output.note(
        f"Upgraded {context.store.shown_name} from schema {before or 'nothing'} to {after}."
    )
    if backup is not None:
        output.note(f"Backup of the previous version: {backup}")


@database_commands.command(
    "check", "orchestrator db check", changes="nothing", prints=("problems",)
)
def check(context: contexts.Context, form: str = options.form) -> None:
    """Check the integrity of the database.

    Checks every page, key and value. Each problem is listed with its table, row and column. Exit
    code 1 if there is one.
    """
    try:
        with session.progress("Checking the database"):
            findings = context.store.check()
    except errors.DamageError as exc:
        message = f"{context.store.shown_name} cannot be read: {exc.problem}"
        raise errors.DatabaseError(f"{message}. {context.store.restore_advice}") from exc
    rows = [{**dataclasses.asdict(finding), "problem": str(finding)} for finding in findings]
    if rows or form != "table":
        output.print_rows("problems", rows, [Column("problem", "parts")], form)
    if findings:
        more = " or more" if len(findings) == stores.MAX_FINDINGS else ""
        problems = output.count(len(findings), "problem")
        raise errors.DatabaseError(f"{problems}{more} found. {context.store.restore_advice}")
    output.note("The database is intact.")


@database_commands.command(
    "backup", "orchestrator db backup ~/orchestrator-backup.db", changes="nothing"
)
def backup(
    context: contexts.Context,
    target: Path | None = argument(required=False, type=value_types.OUTPUT_PATH),
) -> None:
    """Copy the database to a new file while it is in use.

    Without TARGET, the backup is written next to the database, where `orchestrator db restore`
    lists it. The backup of a PostgreSQL database is an SQLite file; `orchestrator db copy` copies
    it back.
    """
    with session.progress("Copying the database"):
        path = context.store.backup(target)
    output.note(f"Copied to {path}.")


@database_commands.command(
    "restore",
    "orchestrator db restore",
    "orchestrator db restore ~/orchestrator-backup.db",
    changes="other",
    when=lambda given: given["backup"] is not None,
    prints=("backups",),
)
def restore(
    ctx: click.Context,
    backup: Path | None = argument(required=False, type=click.Path(path_type=Path)),
    form: str = options.form,
) -> None:
    """Replace the database with a backup.

    Without BACKUP, the backups next to the database are listed. A damaged backup is refused. The
    replaced database is kept. Jobs that were submitted after the backup was made are missing:
    `orchestrator track` adds them by their job IDs.
    """
    store = stores.of(session.configuration_of(ctx))
    ctx.call_on_close(store.close)
    if backup is None:
        rows = [row_values.fields_of(stored, _BACKUP_FIELDS) for stored in store.backups()]
        output.print_rows("backups", rows, _BACKUP_COLUMNS, form)
        return
    from orchestrator.controller.setup import restore as restoration

    with session.progress("Checking the backup"):
        kept = restoration.restore(store, backup, datetime.datetime.now(datetime.UTC))
    output.note(f"Replaced {store.shown_name} with {backup}.")
    if kept is not None:
        output.note(f"The replaced database: {kept}")


@database_commands.command(
    "copy",
    "orchestrator db copy --to postgresql://alice@db.example.org/orchestrator",
    changes="other",
)
def copy(
    context: contexts.Context,
    url: str = option("--to", "Copy to postgresql://... or sqlite:////PATH.", "URL", required=True),
) -> None:
    """Copy all rows to another, empty database.

    For example from an SQLite file to PostgreSQL, or back. Rows keep their numbers, so `@7` is the
    same job in both. Later changes are not copied: stop the controller first, and set `database` in
    the configuration afterwards.
    """
    with session.progress("Copying the database"):
        rows = context.store.copy_to(url)
    output.note(f"Copied {rows} rows to {stores.Store(url).shown_name}.")
    output.note("To use it, set `database` in the configuration to this URL.")

"""orchestrator db."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.cli import output, session, settings
from orchestrator.controller.session import stores


@click.group(name="db", short_help="Check, back up, restore, upgrade or move the database.")
def command() -> None:
    """Check, back up, restore, upgrade or move the database."""


@command.command(short_help="Print where the database lies.")
@click.pass_context
def path(ctx: click.Context) -> None:
    """Print where the database lies: a file, or a server's URL without the password.

    \b
    Example:
      sqlite3 "$(orchestrator db path)" .tables
    """
    click.echo(stores.of(settings.configuration_of(ctx)).place)


@command.command(short_help="Bring an older database to this version's form.")
@click.pass_context
def upgrade(ctx: click.Context) -> None:
    """Bring an older database to this version's form.

    Of a file a backup is made first. A server goes over wholly or not at all: make a backup with
    `orchestrator db backup` before, where you may want to go back to the older version.

    \b
    Example:
      orchestrator db upgrade
    """
    context = session.open_context(ctx)
    with context.reporter.activity("Upgrading the database"):
        done = context.store.upgrade()
    if done.before == done.after:
        output.say(f"{context.store.place} is up to date ({done.after}).")
        return
    output.say(f"{context.store.place} went from {done.before or 'nothing'} to {done.after}.")
    if done.backup is not None:
        output.say(f"As it was before: {done.backup}")


@command.command(short_help="Check that the database is whole.")
@output.format_option
@click.pass_context
def check(ctx: click.Context, format_: str | None, as_json: bool) -> None:
    """Check that the database is whole: each page, each key, and each value of each row.

    Each problem is listed with its table, row and column. Exit 1 when there is one.

    \b
    Example:
      orchestrator db check
    """
    context = session.open_context(ctx)
    with context.reporter.activity("Checking the database"):
        found = context.store.check()
    output.items(
        "checks",
        [{**dataclasses.asdict(one), "problem": str(one)} for one in found],
        ["problem"],
        output.chosen(format_, as_json),
    )
    if found:
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        more = " or more" if len(found) == stores.MOST_FINDINGS else ""
        raise errors.DatabaseError(f"{count}{more} found. {context.store.damaged}")
    output.say("The database is whole.")


@command.command(short_help="Copy the database while it is in use.")
@click.argument("target", required=False, type=click.Path(path_type=Path))
@click.pass_context
def backup(ctx: click.Context, target: Path | None) -> None:
    """Copy the database to TARGET, a new file, while it is in use.

    Without TARGET the file is made beside the database, where `orchestrator db restore` lists it.
    It is an SQLite file also where the database is PostgreSQL; `orchestrator db copy` brings it
    back there.

    \b
    Example:
      orchestrator db backup ~/orchestrator-backup.db
    """
    context = session.open_context(ctx)
    with context.reporter.activity("Copying the database"):
        path = context.store.backup(target)
    output.say(f"Copied to {path}.")


@command.command(short_help="Put a backup in place of the database.")
@click.argument("backup", required=False, type=click.Path(path_type=Path))
@output.format_option
@click.pass_context
def restore(ctx: click.Context, backup: Path | None, format_: str | None, as_json: bool) -> None:
    """Put BACKUP in place of the database; without BACKUP, list the backups beside the database.

    BACKUP is checked first, and a damaged one is refused. The database as it was is kept beside the
    new one. Jobs that were submitted after the backup was made are not in it: `orchestrator track`
    adds them by their job IDs.

    \b
    Examples:
      orchestrator db restore
      orchestrator db restore ~/orchestrator-backup.db
    """
    store = stores.of(settings.configuration_of(ctx))
    ctx.call_on_close(store.close)
    if backup is None:
        rows = [
            {"path": str(one.path), "made_at": one.made_at, "size_bytes": one.size_bytes}
            for one in store.backups()
        ]
        columns = ["path", "made_at", "size_bytes"]
        output.items("backups", rows, columns, output.chosen(format_, as_json))
        return
    from orchestrator.cli import progress
    from orchestrator.controller.setup import restore as restoring

    with progress.waiting("Checking the backup", output.say):
        restored = restoring.restore(store, backup, datetime.datetime.now(datetime.UTC))
    output.say(f"{store.place} is now what {backup} holds.")
    if restored.kept is not None:
        output.say(f"The database as it was: {restored.kept}")


@command.command(short_help="Copy all rows to another, empty database.")
@click.option("--to", "url", required=True, metavar="URL", help="postgresql:// or sqlite:////")
@click.pass_context
def copy(ctx: click.Context, url: str) -> None:
    """Copy all rows to another, empty database: from a file to PostgreSQL, or back.

    Rows keep their numbers, so `@7` means the same job there. What is stored here afterwards is
    not there: stop the service first, and set `database` when it is done.

    \b
    Example:
      orchestrator db copy --to postgresql://alice@db.example.org/orchestrator
    """
    context = session.open_context(ctx)
    with context.reporter.activity("Copying the database"):
        rows = context.store.copy_to(url)
    place = stores.Store(url).place
    output.say(f"Copied {rows} rows to {place}.")
    output.say("To use it, set `database` in the configuration to this URL.")

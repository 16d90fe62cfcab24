"""orchestrator completion, and the completion of job IDs, rows and names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator import errors
from orchestrator.cli import commands
from orchestrator.cli.commands import argument
from orchestrator.text import escaping

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Item = TypeVar("Item")

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ORCHESTRATOR_COMPLETE"
MAX_ITEMS = 100
#: Words that need no quotes in a shell.
_PLAIN = re.compile(r"[A-Za-z0-9@._+-]+")


@commands.command(
    "completion",
    'eval "$(orchestrator completion bash)"        # ~/.bashrc, bash 4.4 or newer',
    'eval "$(orchestrator completion zsh)"         # ~/.zshrc, after compinit',
    "orchestrator completion fish | source         # ~/.config/fish/config.fish",
    changes="nothing",
)
def completion(
    ctx: click.Context,
    shell: str | None = argument(type=click.Choice(SHELLS), required=False),
) -> None:
    """Print the shell code that completes commands and job IDs.

    Add one of these lines to your shell's startup file. SHELL defaults to $SHELL.
    """
    from click import shell_completion

    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    completer = shell_completion.get_completion_class(name) if name in SHELLS else None
    if completer is None:
        raise errors.OrchestratorError(
            f"$SHELL is {name or 'not set'}, which is not supported; name bash, zsh or fish"
        )
    click.echo(completer(ctx.find_root().command, {}, "orchestrator", VARIABLE).source())


def job_references(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return matching jobs with their states, from the database alone."""
    from orchestrator import jobs

    newest = _read(ctx, lambda work: work.jobs.find(jobs.JobQuery(limit=10 * MAX_ITEMS)))
    words = []
    for job in newest:
        by_id, by_name = f"{job.state} {job.name}", f"{job.state} {job.job_id}"
        words += [(job.job_id, by_id), (f"@{job.row}", by_id), (job.name, by_name)]
    return _items(words, incomplete)


def sweep_references(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return matching sweeps, the newest first."""
    newest = _read(ctx, lambda work: work.sweeps.newest(limit=MAX_ITEMS))
    words: list[tuple[str | None, str]] = []
    for sweep in newest:
        shown = f"{sweep.kind} {sweep.created_at:%Y-%m-%d}"
        words += [(f"@{sweep.row}", f"{sweep.name} {shown}"), (sweep.name, shown)]
    return _items(words, incomplete)


def metric_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    # click does not assign arguments while the last option has no value.
    sweep = ctx.params.get("reference") or next(iter(ctx.args), "")

    def read(work: Any) -> list[str]:
        stored = work.sweeps.find(sweep)
        points = [] if stored is None else work.sweeps.jobs(stored.row)
        names: list[str] = work.metrics.names([job.row for job in points])
        return names

    return _items([(name, "metric") for name in _read(ctx, read)], incomplete)


def _read(ctx: click.Context, read: Callable[[Any], Sequence[Item]]) -> Sequence[Item]:
    """Return what `read` finds in the database; nothing if there is none or it cannot be read."""
    from orchestrator.cli import session
    from orchestrator.controller.session import stores

    if ctx.find_root().params.get("host") is not None:
        # The jobs are those of another host, which would have to be asked for each key.
        return []
    # click does not run the parent commands here, so ctx.obj is not set.
    given = ctx.find_root().params
    names = ("profile", "runs_dir", "state_dir")
    ctx.obj = {name: given[name] for name in names if given.get(name) is not None}
    try:
        configuration = session.configuration_of(ctx, quiet=True)
        store = stores.of(configuration)
        if not store.exists():
            return []
        try:
            with store.reading() as work:
                return read(work)
        finally:
            store.close()
    except errors.OrchestratorError:
        # A message would end up in the command line; the command itself reports the error.
        return []


def _items(words: Iterable[tuple[str | None, str]], incomplete: str) -> list[CompletionItem]:
    """Return the words, each with its help, that begin like the incomplete one."""
    from click.shell_completion import CompletionItem

    is_row = incomplete.startswith("@")
    items: dict[str, str] = {}
    for word, shown in words:
        if word and word.startswith("@") == is_row and word.startswith(incomplete):
            # The shell inserts the word into the command line unquoted.
            if _PLAIN.fullmatch(word):
                items.setdefault(word, shown)
    return [
        CompletionItem(word, help=escaping.one_line(shown))
        for word, shown in list(items.items())[:MAX_ITEMS]
    ]

"""The command line. Each command is loaded when it is called, so that --help loads click alone."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import click

import orchestrator
from orchestrator.cli import interrupts, terminal

if typing.TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Command -> (module, attribute, the line shown by --help; a test compares it with the command's).
COMMANDS = {
    "render": ("render", "Show the batch script of a spec; nothing is submitted."),
    "submit": ("submit", "Submit a job to Slurm, exactly once."),
    "track": ("track", "Follow a job that was submitted by hand."),
    "refresh": ("refresh", "Ask Slurm about all live jobs now."),
    "status": ("status", "List jobs and their states."),
    "show": ("show", "Show all that is known of one job."),
    "logs": ("logs", "Print the logs of jobs, or search them."),
    "metrics": ("metrics", "Print the numbers that jobs' logs told."),
    "patterns": ("patterns", "List patterns, and try them on a log."),
    "explain": ("explain", "Tell why a job failed or waits, and what helps."),
    "usage": ("usage", "Add up GPU-hours and core-hours."),
    "wait": ("wait", "Wait until jobs have ended."),
    "cancel": ("cancel", "Cancel jobs, and see that Slurm did."),
    "hold": ("hold", "Keep waiting jobs from starting."),
    "release": ("release", "Let held jobs start."),
    "requeue": ("requeue", "Put jobs back into the queue, under the same job ID."),
    "resubmit": ("resubmit", "Send jobs again that have ended or that Slurm never got."),
    "sweep": ("sweep", "Submit many jobs of one spec, and follow them together."),
    "schedule": ("schedule", "Submit jobs and sweeps at planned times."),
    "graph": ("graph", "Submit jobs and sweeps that wait for each other."),
    "baseline": ("baseline", "Keep numbers under a name, and hold later ones to them."),
    "tick": ("tick", "Do once what the controller does again and again."),
    "serve": ("serve", "Do what is due, again and again, until it is ended."),
    "notices": ("notices", "List what was told to whom, and try a channel."),
    "doctor": ("doctor", "Check what orchestrator needs on this machine."),
    "config": ("config", "Draft, or show the configuration and its origins."),
    "trust": ("trust", "Trust a project's orchestrator.toml that you have reviewed."),
    "completion": ("completion", "Print what makes the shell complete commands and job IDs."),
    "db": ("db", "Check, back up, restore, upgrade or move the database."),
}


#: Objects made before garbage is looked for. Modules are never garbage, and `status` makes 104,000
#: objects, nearly all of them modules': with Python's 700 a quarter of its time is for the search.
OBJECTS_BEFORE_SEARCH = 200_000


class ReaderGoneError(Exception):
    """Nobody reads what is printed: `orchestrator status | head -1`."""


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    # click's main() ends with 1 on EPIPE, as a job does that failed (click 8.1 to 8.3, core.py).
    try:
        yield
    except BrokenPipeError as exc:
        raise ReaderGoneError from exc


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used.

    `modules`: command -> (module, the line shown by --help).
    """

    def __init__(
        self, *args: Any, modules: Mapping[str, tuple[str, str]] = COMMANDS, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _told_apart():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with _told_apart():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"orchestrator.cli.{self.modules[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click's own asks each command for its help, and so loads all of them.
        options = click.Command.shell_complete(self, ctx, incomplete)
        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.modules.items()
            if name.startswith(incomplete)
        ]
        return [*names, *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.modules.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(orchestrator.__version__, prog_name="orchestrator")
@click.option("--profile", metavar="NAME", help="Cluster profile of the configuration.")
@click.option(
    "--runs-dir", metavar="DIR", help="Where run folders are made; seen from compute nodes."
)
@click.option("--state-dir", metavar="DIR", help="Where the database lies.")
@click.pass_context
def cli(
    ctx: click.Context, profile: str | None, runs_dir: str | None, state_dir: str | None
) -> None:
    """Describe a training job once; submit it to Slurm exactly once; follow it; read its numbers.

    \b
    Example:
      orchestrator submit examples/digits_ddp.toml --wait
      orchestrator metrics digits-ddp --name throughput
    """
    given = {"profile": profile, "runs_dir": runs_dir, "state_dir": state_dir}
    ctx.obj = {key: value for key, value in given.items() if value is not None}


def main() -> None:
    """Run the command line; errors of ours become one message and their exit code."""
    gc.set_threshold(OBJECTS_BEFORE_SEARCH)
    if sys.stdout is None:
        # `>&-`: there is nobody to tell.
        sys.stdout = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        # A script is UTF-8 whatever LANG says: what is printed equals what is submitted.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    terminal.escape_streams()
    try:
        interrupts.raise_on_interrupt()
        code = _run()
    except KeyboardInterrupt:
        # Pressed twice; one message is enough.
        code = interrupts.EXIT_CODE
    except (ReaderGoneError, BrokenPipeError):
        # Who read has seen enough. As cat and ls end then.
        _drop(sys.stdout, sys.stderr)
        code = 128 + signal.SIGPIPE
    except OSError as exc:
        _drop(sys.stdout)
        told = exc.strerror or exc
        with contextlib.suppress(OSError):
            click.echo(
                f"Error: {told}; the command may have done its work all the same: "
                "`orchestrator status` shows it",
                err=True,
            )
        code = 1
    interrupts.end_on_interrupt()
    # Or Python would look through all of it once more at its end.
    gc.freeze()
    sys.exit(code)


def _run() -> int:
    """Run the command and return its exit code; what cannot be printed raises OSError."""
    from orchestrator import errors

    try:
        # What a command returns, or the code that it asked for by ctx.exit().
        ended = cli(prog_name="orchestrator", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except errors.OrchestratorError as exc:
        click.echo(f"Error: {exc}", err=True)
        return exc.exit_code
    except (OSError, ReaderGoneError):
        raise
    except UnicodeEncodeError as exc:
        # An argument that is no path, for the database: paths may hold such bytes.
        click.echo(f"Error: {exc.object!a} holds a byte that is not UTF-8", err=True)
        return click.UsageError.exit_code
    except Exception as exc:
        if interrupts.is_interrupt(exc):
            return _interrupted()
        from orchestrator.cli import bugs

        click.echo(bugs.report(exc, os.environ), err=True)
        return bugs.EXIT_CODE
    return ended if isinstance(ended, int) else 0


def _interrupted() -> int:
    # The second time it ends the process, without another message.
    interrupts.end_on_interrupt()
    click.echo("Interrupted.", err=True)
    return interrupts.EXIT_CODE


def _drop(*streams: typing.TextIO | None) -> None:
    # What is left in the buffer would fail once more when Python ends.
    with open(os.devnull, "w") as nothing:
        for stream in streams:
            # None: it was closed before we began (`2>&-`).
            if stream is not None:
                os.dup2(nothing.fileno(), stream.fileno())

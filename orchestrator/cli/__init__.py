"""The command line. A command's module is imported when the command is used."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import typing
from collections.abc import Iterator
from typing import Any

import click

import orchestrator
from orchestrator.cli import interrupts
from orchestrator.cli.arguments import suggestions
from orchestrator.cli.output import terminal

if typing.TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from orchestrator.controller.session import callers

#: Command -> (module, first sentence of its help).
COMMANDS = {
    "render": ("submit", "Print the batch script of a job."),
    "submit": ("submit", "Submit a job exactly once."),
    "track": ("submit", "Track jobs that were submitted without orchestrator."),
    "refresh": ("status", "Query Slurm about all live jobs now."),
    "status": ("status", "List jobs and their states."),
    "show": ("show", "Show the details of a job."),
    "logs": ("logs", "Print or search the logs of jobs."),
    "metrics": ("metrics", "Show metrics parsed from job logs."),
    "patterns": ("patterns", "List and test the patterns that find metrics in logs."),
    "explain": ("explain", "Explain why a job failed or is pending, and how to fix it."),
    "diff": (
        "reproduction",
        "Show what two jobs differ in: spec, arguments, code, environment and results.",
    ),
    "checkout": (
        "reproduction",
        "Write the code of a job into DIR, and print the commands that run it again.",
    ),
    "nodes": ("nodes", "Show the nodes that jobs failed on or ran slowly on."),
    "usage": ("usage", "Sum up GPU-hours and core-hours, or disk use."),
    "prune": ("prune", "Remove run folders, checkpoints and rows of ended jobs."),
    "wait": ("actions", "Wait until jobs have ended."),
    "cancel": ("actions", "Cancel jobs, and wait until Slurm shows that they ended."),
    "hold": ("actions", "Prevent pending jobs from starting."),
    "release": ("actions", "Allow held jobs to start."),
    "requeue": ("actions", "Requeue jobs under the same job ID."),
    "resubmit": ("submit", "Submit jobs again that ended or were never submitted."),
    "sweep": ("sweeps", "Submit many jobs from one spec and follow them together."),
    "schedule": ("schedules", "Submit jobs and sweeps at planned times."),
    "graph": ("graphs", "Submit jobs and sweeps that depend on each other."),
    "image": ("images", "Build container images from definition files."),
    "baseline": ("baselines", "Save results as a baseline and compare later runs with it."),
    "plan": ("plans", "Show what a command would do, and print a token for `orchestrator apply`."),
    "apply": ("plans", "Do what a plan says, once."),
    "mcp": ("mcp", "Serve jobs to an AI agent: an MCP server on stdin and stdout."),
    "tick": ("service", "Run one controller pass."),
    "serve": ("service", "Run the controller until it is stopped."),
    "top": ("top", "Show jobs, their logs and metrics full screen in the terminal."),
    "web": ("web", "Show jobs, their logs and curves as web pages."),
    "notices": ("notices", "List sent notifications, or send a test message."),
    "doctor": ("config", "Check this machine and the configuration."),
    "config": ("config", "Show the configuration, its origins and fabrics, or draft a profile."),
    "trust": ("config", "Trust a project's orchestrator.toml after you have reviewed it."),
    "schema": ("schemas", "Print the JSON Schema of what a command prints with --json."),
    "completion": ("completion", "Print the shell code that completes commands and job IDs."),
    "setup": ("remote.commands", "Install or upgrade orchestrator on a host, without root."),
    "connect": ("remote.commands", "Keep a connection to a host open for later calls with --host."),
    "agent": ("remote.commands", "Answer `orchestrator --host` of another computer."),
    "db": ("database", "Check, back up, restore, upgrade or move the database."),
}

#: Objects that are created before Python searches for garbage. Modules are never garbage, and they
#: are most of the 104,000 objects of `status`: with the default, 700, the search takes a quarter of
#: its time.
GC_THRESHOLD = 200_000


#: The words of the command line from the command on, in the click context's meta.
_WORDS = "orchestrator.words"


class ClosedOutputError(Exception):
    """The reader of stdout is gone, as in `orchestrator status | head -1`."""


@contextlib.contextmanager
def _closed_output_raised() -> Iterator[None]:
    # click's main() exits with 1 on EPIPE, like a failed job (click 8.1 to 8.3, core.py).
    try:
        yield
    except BrokenPipeError as exc:
        raise ClosedOutputError from exc


class LazyGroup(suggestions.Group):
    """The group of all commands, which imports a command's module when it is used.

    With --host none is imported: the whole command line goes to another host.
    """

    hints: typing.ClassVar = {
        "init": "To write a spec: submit train.py --save-spec train.toml. To write a profile of a "
        "cluster: config init."
    }

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _closed_output_raised():
            return super().make_context(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        rest = super().parse_args(ctx, args)
        if ctx.params.get("host") is not None:
            _, ctx.meta[_WORDS], _ = self.make_parser(ctx).parse_args(words)
        return rest

    def invoke(self, ctx: click.Context) -> object:
        with _closed_output_raised():
            if ctx.params.get("host") is None:
                return super().invoke(ctx)
            if not ctx.meta[_WORDS]:
                ctx.fail("Missing command.")
            if ctx.obj is not None:
                # With this user's keys it would go further than the computer that sent it may.
                ctx.fail("--host: the command came from another computer already")
            from orchestrator.cli.remote import on_host

            options = {key: value for key, value in ctx.params.items() if value is not None}
            return on_host.run_on_host(ctx, options, ctx.meta[_WORDS])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"orchestrator.cli.{COMMANDS[cmd_name][0]}")
        commands = (value for value in vars(module).values() if isinstance(value, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click would import all commands to get their help.
        options = click.Command.shell_complete(self, ctx, incomplete)
        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(orchestrator.__version__, prog_name="orchestrator")
@click.option("--profile", metavar="NAME", help="Use this cluster profile of the configuration.")
@click.option(
    "--runs-dir",
    metavar="DIR",
    help="Create run folders in DIR, which compute nodes must be able to see.",
)
@click.option("--state-dir", metavar="DIR", help="Keep the database in DIR.")
@click.option(
    "--read-only",
    is_flag=True,
    envvar="ORCHESTRATOR_READ_ONLY",
    help="Refuse commands that submit, cancel or change anything. Also: ORCHESTRATOR_READ_ONLY=1.",
)
@click.option(
    "--host",
    metavar="NAME",
    help="Run the command on this host, through ssh: a table [hosts.NAME] or what ssh connects to.",
)
@click.pass_context
def cli(
    ctx: click.Context,
    profile: str | None,
    runs_dir: str | None,
    state_dir: str | None,
    read_only: bool,
    host: str | None,
) -> None:
    """Submit training jobs to Slurm or this machine exactly once, and follow them.

    \b
    Example:
      orchestrator submit train.py --wait
      orchestrator metrics train
    """
    given = {"profile": profile, "runs_dir": runs_dir, "state_dir": state_dir}
    # Help is to need no more than click.
    from orchestrator.cli import session

    session.set_read_only(ctx, read_only)
    session.set_caller(ctx, ctx.obj)
    if (runs_dir or state_dir) and session.is_confined(ctx):
        ctx.fail("--runs-dir and --state-dir: this connection is read-only")
    ctx.obj = {key: value for key, value in given.items() if value is not None}


def main(caller: callers.Caller | None = None) -> None:
    """Run the command line. Errors become a message and an exit code.

    caller: the computer that sent it.
    """
    gc.set_threshold(GC_THRESHOLD)
    if sys.stdout is None:
        # It was closed: `>&-`.
        sys.stdout = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        # Scripts are UTF-8 regardless of LANG: the printed script equals the submitted one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    terminal.escape_streams()
    try:
        interrupts.raise_on_interrupt()
        code = run(caller)
    except KeyboardInterrupt:
        # Ctrl-C was pressed twice; the first one printed the message.
        code = interrupts.INTERRUPTED
    except (ClosedOutputError, BrokenPipeError):
        # End as cat and ls do.
        _discard(sys.stdout, sys.stderr)
        code = 128 + signal.SIGPIPE
    except OSError as exc:
        _discard(sys.stdout)
        with contextlib.suppress(OSError):
            click.echo(
                f"Error: {exc.strerror or exc}; the command may have succeeded anyway: check with "
                "`orchestrator status`",
                err=True,
            )
        code = 1
    interrupts.end_on_interrupt()
    # Python would search all objects for garbage once more at its end.
    gc.freeze()
    sys.exit(code)


def run(caller: callers.Caller | None = None) -> int:
    """Run the command and return its exit code. OSError if the output cannot be written."""
    from orchestrator import errors

    try:
        # The command's return value, or the code of ctx.exit().
        result = cli(prog_name="orchestrator", standalone_mode=False, obj=caller)
        sys.stdout.flush()
    except click.NoSuchOption as exc:
        suggestions.with_closest(exc, sys.argv[1:]).show()
        return exc.exit_code
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except errors.OrchestratorError as exc:
        click.echo(f"Error: {exc}", err=True)
        return exc.exit_code
    except (OSError, ClosedOutputError):
        raise
    except UnicodeEncodeError as exc:
        # Only paths may contain such bytes; other arguments go into the database.
        text = exc.object[exc.start : exc.end]
        click.echo(f"Error: {text!a} contains a byte that is not UTF-8", err=True)
        return click.UsageError.exit_code
    except Exception as exc:
        if interrupts.is_interrupt(exc):
            return _interrupted()
        click.echo(interrupts.report_unexpected(exc, os.environ), err=True)
        return interrupts.UNEXPECTED
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    # A second Ctrl-C ends the process without another message.
    interrupts.end_on_interrupt()
    click.echo("Interrupted.", err=True)
    return interrupts.INTERRUPTED


def _discard(*streams: typing.TextIO | None) -> None:
    """Discard what is left in the buffers: writing it would fail again when Python ends."""
    with open(os.devnull, "w") as null:
        for stream in streams:
            # None: the stream was closed from the start (`2>&-`).
            if stream is not None:
                os.dup2(null.fileno(), stream.fileno())

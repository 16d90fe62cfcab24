"""The command line. Each command is loaded when it is called, so that --help loads click alone."""

from __future__ import annotations

import importlib
import io
import os
import sys
import typing

import click

import orchestrator

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
    "logs": ("logs", "Print a job's log."),
    "metrics": ("metrics", "Print the numbers that a job's log told."),
    "wait": ("wait", "Wait until jobs have ended."),
    "cancel": ("cancel", "Cancel jobs, and see that Slurm did."),
    "hold": ("hold", "Keep waiting jobs from starting."),
    "release": ("release", "Let held jobs start."),
    "requeue": ("requeue", "Put jobs back into the queue, under the same job ID."),
    "resubmit": ("resubmit", "Send jobs again that have ended or that Slurm never got."),
    "doctor": ("doctor", "Check what orchestrator needs on this machine."),
    "config": ("config", "Draft, or show the configuration and its origins."),
    "completion": ("completion", "Print what makes the shell complete commands and job IDs."),
    "db": ("db", "Upgrade, check, back up or find the database."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"orchestrator.cli.{COMMANDS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click's own asks each command for its help, and so loads all of them.
        options = click.Command.shell_complete(self, ctx, incomplete)
        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


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
    from orchestrator import errors

    if sys.stdout is None:
        # `>&-`: there is nobody to tell.
        sys.stdout = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        # A script is UTF-8 whatever LANG says: what is printed equals what is submitted.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        cli(prog_name="orchestrator", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    except errors.OrchestratorError as exc:
        click.echo(f"Error: {exc}", err=True)
        sys.exit(exc.exit_code)
    except BrokenPipeError:
        # `orchestrator status | head -1`: who read has seen enough.
        _drop_stdout()
        sys.exit(1)
    except OSError as exc:
        _drop_stdout()
        click.echo(
            f"Error: {exc.strerror or exc}; the command may have done its work all the same: "
            "`orchestrator status` shows it",
            err=True,
        )
        sys.exit(1)


def _drop_stdout() -> None:
    # What is left in the buffer would fail once more when Python ends.
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)

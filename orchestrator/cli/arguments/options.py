"""Options that several commands share."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, output
from orchestrator.cli.arguments import value_types
from orchestrator.cli.commands import argument, option

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import contexts

#: Suffixes of files that are not the name of their format.
_SUFFIXES = {"markdown": ".md"}


@dataclasses.dataclass(frozen=True)
class _Format:
    """--format and --json. The value is None if neither is given and there is no default."""

    formats: Sequence[str]
    default: str = "table on a terminal, otherwise tsv"
    has_default: bool = False

    def parameters(self, name: str) -> list[click.Parameter]:
        help = f"Output format. Default: {self.default}."
        return [
            click.Option(["--format", name], help=help, type=click.Choice(self.formats)),
            click.Option(["--json", "is_json"], help="Same as --format json.", is_flag=True),
        ]

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        form = "json" if values["is_json"] else values[name]
        return output.default_format() if form is None and self.has_default else form


def optional_form_of(formats: Sequence[str], default: str = _Format.default) -> Any:
    """Declare --format with these formats and --json; the value is None if neither is given."""
    return _Format(formats, default)


def format_of_file(form: str | None, path: Path | None, formats: Sequence[str]) -> str:
    """Return the format of the output: as given, or by the suffix of the file, or the default.

    UsageError for an unknown suffix, and for Parquet without a file.
    """
    if form is None and path is not None:
        by_suffix = {_SUFFIXES.get(name, f".{name}"): name for name in formats if name != "table"}
        form = by_suffix.get(path.suffix)
        if form is None:
            raise click.UsageError(
                f"--output {path}: unknown suffix; use --format, or one of {', '.join(by_suffix)}"
            )
    if form == "parquet" and path is None:
        raise click.UsageError("--format parquet requires --output FILE.parquet")
    return form or output.default_format()


form: Any = _Format(output.FORMATS, has_default=True)
optional_form: Any = _Format(output.FORMATS)


def refuse(problems: Mapping[str, object]) -> None:
    """Raise UsageError with the first problem that applies."""
    for problem, applies in problems.items():
        if applies:
            raise click.UsageError(problem)


def refuse_format(form: str | None, plain: Mapping[str, bool]) -> None:
    """Raise UsageError if --format or --json is given with an option that prints plain text."""
    for name, is_given in plain.items():
        refuse({f"{name} prints plain text: remove --format or --json": form and is_given})


limit = option(
    "-n --limit", "Show at most this many, the newest ones.", value_types.COUNT, default=100
)
refresh = option(
    "--refresh/--no-refresh",
    "Query Slurm now, or not at all. Default: query if the stored state is older than the "
    "profile's poll_floor_seconds.",
)
yes = option("-y --yes", "Do not ask for confirmation.")


def complete(function: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return the completion by a function of completion.py, which only completion needs."""

    def items(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from orchestrator.cli import completion

        return getattr(completion, function)(ctx, param, incomplete)

    return items


references = argument(nargs=-1, metavar="[JOB...]", shell_complete=complete("job_references"))
sweep = argument(metavar="SWEEP", shell_complete=complete("sweep_references"))
sweeps = option(
    "--sweep",
    "All jobs of a sweep.",
    "SWEEP",
    multiple=True,
    shell_complete=complete("sweep_references"),
)
of_sweeps = option(
    "--sweep",
    "Only jobs of sweeps with this name, or of one sweep: @3.",
    "SWEEP",
    multiple=True,
    shell_complete=complete("sweep_references"),
)
snapshot = option(
    "--snapshot/--no-snapshot",
    "Run a snapshot of the code, taken now, instead of what is in the folder when the job starts. "
    "Default: code.snapshot of the spec or the profile.",
)
wait = option("--wait", "Wait until all jobs end; exit with 1 unless all are COMPLETED.")
queue = option(
    "--queue/--no-queue",
    "Defer the job if Slurm refuses it for now (a limit, a full queue, a drained partition), "
    "and submit it later. Default: the profile's queue_submissions.",
)
max_gpu_hours = option(
    "--max-gpu-hours",
    "Give no token to a plan that may use more. It cannot exceed agents.max_gpu_hours of the "
    "configuration.",
    value_types.FloatRange(min=0.0),
    metavar="HOURS",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The jobs that a command is to act on."""

    references: tuple[str, ...] = references
    names: tuple[str, ...] = option(
        "--name", "All live jobs with this name.", "NAME", multiple=True
    )
    labels: tuple[str, ...] = option(
        "--label", "All live jobs with this label.", "KEY=VALUE", multiple=True
    )
    sweeps: tuple[str, ...] = sweeps

    def find(self, context: contexts.Context, *, with_ended: bool = False) -> list[jobs.Job]:
        """Return the selected jobs, each once. RequestError if nothing is selected.

        with_ended: a sweep selects all its points; otherwise only its live jobs.
        """
        from orchestrator.controller.session import selection

        return selection.Selection(**vars(self)).find(context, with_ended=with_ended)


selection = commands.record(Selection)


def _joined(ctx: click.Context, param: click.Parameter, lists: Any) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Fields of jobs.JobQuery."""

    names: tuple[str, ...] = option("--name", "Only jobs with this name.", "NAME", multiple=True)
    labels: tuple[str, ...] = option(
        "--label", "Only jobs with this label.", "KEY=VALUE", multiple=True
    )
    partitions: tuple[str, ...] = option(
        "-p --partition",
        "Only these partitions.",
        value_types.names_list,
        metavar="NAME,...",
        callback=_joined,
        multiple=True,
    )


job_filter = commands.record(JobFilter)


def _parse_states(text: str) -> tuple[jobs.JobState, ...]:
    # `-t ""` is an error, such as an unset variable, and must not select all states.
    return tuple(map(_parse_state, text.split(",")))


def _parse_state(word: str) -> jobs.JobState:
    # Most commands need not import it.
    from orchestrator.slurm import states

    try:
        return states.named(word)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


job_states = option(
    "-t --state",
    "Only these states, in Slurm's long or short form: RUNNING,PD,F.",
    _parse_states,
    metavar="STATE,...",
)


def _set_scheduler(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.with_resource(_with_scheduler_advice())
    if value is not None:
        ctx.obj = {**(ctx.obj or {}), "scheduler": value}


@contextlib.contextmanager
def _with_scheduler_advice() -> Iterator[None]:
    """Add this option to the error that Slurm's commands are missing."""
    try:
        yield
    except errors.SlurmError as exc:
        # Most commands need not import it.
        from orchestrator.slurm import failures

        if not isinstance(exc, failures.MissingCommandError):
            raise
        message = f"{exc} To run it on this machine, without Slurm, add --scheduler local."
        raise failures.MissingCommandError(message) from exc


#: Its value joins the options that precede the command's name.
scheduler = option(
    "--scheduler",
    "Where the job runs. auto: Slurm if sbatch is on PATH, otherwise this machine.",
    click.Choice(["auto", "slurm", "local"]),
    expose_value=False,
    callback=_set_scheduler,
)

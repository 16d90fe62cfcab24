"""Options that several commands share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

from orchestrator.cli import commands, completion, output, value_types
from orchestrator.cli.commands import argument, option


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
    "Ask Slurm now, or not at all. Default: ask if the stored state is older than the "
    "profile's poll_floor_seconds.",
)
yes = option("-y --yes", "Do not ask for confirmation.")
references = argument(nargs=-1, metavar="[JOB...]", shell_complete=completion.job_references)
sweeps = option("--sweep", "All jobs of a sweep.", "SWEEP", multiple=True)
wait = option("--wait", "Wait until all jobs end; exit with 1 unless all are COMPLETED.")
queue = option(
    "--queue/--no-queue",
    "Defer the submission when Slurm refuses it because of a limit, and send it later. "
    "Default: the profile's queue_submissions.",
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


def _set_scheduler(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.obj = {**(ctx.obj or {}), "scheduler": value}


#: Its value joins the options that precede the command's name.
scheduler = option(
    "--scheduler",
    "Where the job runs. auto: Slurm if sbatch is on PATH, otherwise this machine.",
    click.Choice(["auto", "slurm", "local"]),
    expose_value=False,
    callback=_set_scheduler,
)

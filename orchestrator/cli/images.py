"""orchestrator image."""

from __future__ import annotations

import datetime
import pathlib
import sys

import click

from orchestrator import jobs
from orchestrator.cli import actions, commands, output
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.images import building
from orchestrator.controller.session import contexts
from orchestrator.rows import row_values
from orchestrator.rows.contract import service
from orchestrator.text import sizes

COLUMNS = (
    Column("name", "name"),
    Column("state"),
    Column("size"),
    Column("architecture", drop=2),
    Column("built_at", drop=3),
    Column("path", "parts", drop=1),
)

image_commands = commands.Group("image", help="Build container images from definition files.")


@image_commands.command(
    "build",
    "orchestrator image build env.def --wait",
    "orchestrator image build env.def --partition cpu --output env.sif",
    "orchestrator image build env.def -- --mksquashfs-args '-comp zstd'",
    changes="other",
)
def build(
    context: contexts.Context,
    definition: pathlib.Path = argument(
        metavar="FILE.def", type=click.Path(path_type=pathlib.Path)
    ),
    build_options: tuple[str, ...] = argument(nargs=-1, metavar="[-- OPTION...]"),
    runtime: str = option(
        "--runtime",
        "The program that builds.",
        click.Choice(["apptainer", "singularity"]),
        default="apptainer",
    ),
    link: pathlib.Path | None = option(
        "--output",
        "Also make X.sif a symbolic link to the image.",
        value_types.OUTPUT_PATH,
        metavar="X.sif",
    ),
    partition: str | None = option("--partition", "Partition of the job.", "NAME"),
    time_limit: str | None = option("--time-limit", "Time limit of the job.", "TIME"),
    cpus_per_task: int | None = option(
        "--cpus-per-task", "CPUs of the job.", click.IntRange(min=1)
    ),
    mem: str | None = option("--mem", "Memory of the job.", "SIZE"),
    wait_: bool = options.wait,
) -> None:
    """Build an image from a definition file, by a job, and print its path.

    An image is built once: if neither the definition nor a local file that it copies changed, the
    path is printed at once. Relative paths in the definition begin in the current folder, as for
    `apptainer build`; options after -- are passed to it. Without Slurm the job runs on this
    machine. The image is at its path only when it is complete.
    """
    recipe = building.recipe(
        context, definition, runtime=runtime, options=build_options, partition=partition
    )
    changes = jobs.JobSpec(
        name="image",
        partition=partition,
        time_limit=time_limit,
        resources=jobs.Resources(cpus_per_task=cpus_per_task, mem=mem),
    )
    job = building.build(context, recipe, changes, link=link and link.absolute(), argv=sys.argv)
    if job is not None:
        output.note(f"Job {job.job_id} builds the image.")
        if wait_:
            actions.explain_failures(context, actions.wait_for_end(context, [job.row]))
    click.echo(str(recipe.image))


@image_commands.command(
    "list",
    "orchestrator image list --json",
    table=COLUMNS,
    changes="nothing",
    prints=("images",),
)
def list_images(context: contexts.Context, form: str = options.form) -> None:
    """List the images that `image build` built, and those that jobs are building.

    NOT_BUILT: the job that should build it failed or was cancelled.
    """
    rows = [
        row_values.row_of(service.ImageRow, image, built_at=_time(image.changed_at))
        for image in building.stored(context)
    ]
    output.print_rows("images", rows, COLUMNS, form, _line)


@image_commands.command(
    "remove",
    "orchestrator image remove env-0f343b0931126a20f343b0931126a20a",
    changes="other",
)
def remove(
    context: contexts.Context,
    names: tuple[str, ...] = argument(nargs=-1, required=True, metavar="IMAGE..."),
) -> None:
    """Remove images that `image build` built.

    IMAGE is a name from `image list`, or the path. Jobs that need the image fail.
    """
    for name in names:
        click.echo(f"Removed {building.remove(context, name)}")


def _time(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _line(row: output.Row) -> output.Row:
    size = row["size_bytes"]
    return {**row, "size": None if size is None else sizes.text(size)}

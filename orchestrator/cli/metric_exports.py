"""orchestrator metrics export."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts, selection
from orchestrator.trackers import records

_TARGETS = get_args(records.Target)
_EXPORT_COLUMNS = (
    Column("job_id"),
    Column("run"),
    Column("sweep", drop=2),
    Column("values", drop=1),
    Column("added"),
    Column("place", "parts"),
)


@commands.command(
    "export",
    "orchestrator metrics export 123 --to tensorboard",
    "orchestrator metrics export --sweep digits-scaling --to mlflow --uri http://localhost:5000",
    "orchestrator metrics export 123 --to wandb --output exports",
    changes="other",
    prints=("exported",),
)
def export(
    context: contexts.Context,
    references: tuple[str, ...] = options.references,
    sweeps: tuple[str, ...] = options.sweeps,
    target: records.Target = option(
        "--to",
        "What to write: event files of TensorBoard, a run on an MLflow server, or an offline run "
        "of W&B for `wandb sync`.",
        click.Choice(_TARGETS),
        required=True,
    ),
    out: Path | None = option(
        "-o --output",
        "Folder to write into. Default: tensorboard or wandb-export in this folder.",
        value_types.OUTPUT_FOLDER,
    ),
    uri: str | None = option(
        "--uri",
        "MLflow: the server. Default: MLFLOW_TRACKING_URI, else tracking.mlflow_uri of the job.",
        "URI",
    ),
    python: str | None = option(
        "--python",
        "MLflow and W&B: Python that has the package. Default: that of the job, if it is here.",
        "PATH",
    ),
    form: str = options.form,
) -> None:
    """Export metrics to TensorBoard, MLflow or W&B.

    A job and the jobs that continue it are one run: steps that were run again have the later
    values. Exporting again adds only what is new. New log lines are read first.
    """
    from orchestrator.controller.trackers import export, runs

    problems: dict[str, object] = {
        "--to mlflow writes no folder: remove --output": target == "mlflow" and out,
        "--uri requires --to mlflow": uri and target != "mlflow",
        "--to tensorboard needs no package: remove --python": target == "tensorboard" and python,
    }
    options.refuse(problems)
    chains = runs.chains(context, selection.jobs_and_sweeps(context, references, sweeps))
    ingest.ingest_for_command(context, [job for chain in chains for job in chain])
    rows = [
        {
            "job_row": done.run.job.row,
            "job_id": done.run.job.job_id,
            "run": done.run.name,
            "sweep": done.run.group or None,
            "values": done.run.values,
            "added": done.added,
            "place": done.place,
        }
        for done in export.export(context, chains, target, output=out, python=python, uri=uri)
    ]
    output.print_rows("exported", rows, _EXPORT_COLUMNS, form)
    if not rows:
        output.note("No metrics: these jobs have no logs yet, or no line matches a pattern")

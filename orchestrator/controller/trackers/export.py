"""`metrics export`: the runs of jobs, to a tracker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.controller.trackers import mlflow, programs, runs, tensorboard, wandb
from orchestrator.trackers import records

FOLDERS = {"tensorboard": Path("tensorboard"), "wandb": Path("wandb-export")}


def export(
    context: contexts.Context,
    chains: Sequence[Sequence[jobs.Job]],
    target: records.Target,
    *,
    output: Path | None = None,
    python: str | None = None,
    uri: str | None = None,
) -> Iterator[records.Exported]:
    """Export the runs of these chains; yield what was done for each that has values."""
    for chain in chains:
        context.guard.check()
        name = chain[0].name
        with context.reporter.activity(f"Exporting {name} to {target}"):
            run = runs.of_chain(context, chain)
            if not run.series:
                continue
            folder = context.folder / (output or FOLDERS.get(target, Path()))
            if target == "tensorboard":
                yield tensorboard.export(run, folder)
                continue
            found = programs.python_of(context, chain, python)
            if target == "mlflow":
                yield mlflow.export(context, run, python=found, uri=uri)
            else:
                yield wandb.export(context, run, folder, python=found)

"""Writes runs into offline folders of W&B, which `wandb sync` uploads in their order."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from orchestrator.controller.session import contexts
from orchestrator.controller.trackers import places, programs
from orchestrator.trackers import batches, progress, records

#: Variables of a run that is not this one.
_OF_RUN = re.compile(r"WANDB_(?!API_KEY|BASE_URL|CACHE_DIR|CONFIG_DIR|DATA_DIR|PROJECT|ENTITY)\w+")
_FOLDER = re.compile(r"offline-run-\w[\w.-]*")


def export(
    context: contexts.Context,
    run: records.Run,
    output: Path,
    *,
    python: str,
    timeout_seconds: float = programs.TIMEOUT_SECONDS,
) -> records.Exported:
    """Write what is new into a folder of its own.

    The folder gets its name after its content and the progress are on disk: a killed process has
    exported it all or nothing.
    """
    state, done = places.folder_of(output / ".orchestrator", run), output / "wandb"
    with places.opened(state):
        path, draft = state / "progress.json", state / "draft"
        known = places.read_progress(path) or progress.Progress()
        if known.folder and (draft / "wandb" / known.folder).exists():
            # A process was killed before it gave the folder its name.
            _publish(draft, done, known.folder)
        shutil.rmtree(draft, ignore_errors=True)
        pending = progress.changes(known, run.series)
        generation = known.generation
        if pending.replaced_from is not None:
            # Values of W&B cannot be replaced: the run is made anew under another ID.
            generation += 1
            known = progress.Progress(generation=generation)
            pending = progress.changes(known, run.series)
        identity = _identity(run.id, generation)
        if not pending.added:
            return records.Exported(run=run, added=0, place=str(done))
        draft.mkdir()
        rows = batches.rows(pending.series)
        request = {
            "id": identity,
            "name": run.name,
            "group": run.group,
            "project": run.tracking.project or context.environ.get("WANDB_PROJECT") or run.job.name,
            "entity": run.tracking.entity or context.environ.get("WANDB_ENTITY"),
            "parameters": run.parameters,
            "folder": str(draft.absolute()),
            "names": [(series.name, series.axis) for series in run.series],
            "rows": rows,
            "first_row": known.rows,
        }
        environ = {k: v for k, v in context.environ.items() if not _OF_RUN.fullmatch(k)}
        answer = programs.run(python, "wandb", request, environ, timeout_seconds)
        folder = str(answer["folder"])
        if not _FOLDER.fullmatch(folder):
            raise programs.ProgramError(f"wandb wrote no offline folder (but {folder!r})")
        reached = progress.done(
            run.series, rows=known.rows + len(rows), generation=generation, folder=folder
        )
        places.write_progress(path, reached)
        _publish(draft, done, folder)
        shutil.rmtree(draft, ignore_errors=True)
        _remove_outdated(done, run.id, generation)
    return records.Exported(run=run, added=pending.added, place=str(done / folder))


def _identity(run_id: str, generation: int) -> str:
    return f"{run_id}-export{generation + 1 if generation else ''}"


def _remove_outdated(done: Path, run_id: str, generation: int) -> None:
    """Remove what was exported before later attempts replaced it, unless it was uploaded."""
    for older in range(generation):
        for folder in done.glob(f"offline-run-*-{_identity(run_id, older)}"):
            if not any(folder.glob("*.synced")):
                shutil.rmtree(folder, ignore_errors=True)


def _publish(draft: Path, done: Path, folder: str) -> None:
    done.mkdir(exist_ok=True)
    os.rename(draft / "wandb" / folder, done / folder)

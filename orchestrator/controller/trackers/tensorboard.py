"""Writes a run into an event file of TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.controller.trackers import places
from orchestrator.trackers import event_files, progress, records

#: Encoded at a time.
_BATCH = 10_000
PROGRESS = "orchestrator.json"


def export(run: records.Run, output: Path) -> records.Exported:
    """Append what is new. What a killed process had appended is cut off first."""
    folder = places.folder_of(output, run)
    with places.opened(folder):
        known = places.read_progress(folder / PROGRESS)
        path = folder / f"events.out.tfevents.{run.created:010.0f}.orchestrator"
        with os.fdopen(places.descriptor(path, 0o666), "r+b") as file:
            if known is None or os.fstat(file.fileno()).st_size < known.size_bytes:
                known = progress.Progress()
            file.truncate(known.size_bytes)
            file.seek(known.size_bytes)
            pending = progress.changes(known, run.series)
            if not known.size_bytes:
                file.write(event_files.beginning(run.created))
            first = pending.replaced_from
            if first is not None:
                file.write(event_files.restart(first, run.created))
            for series, kept in pending.series:
                encode = event_files.encoder(series.name)
                indexes = range(kept, len(series.steps))
                if first is not None:
                    # TensorBoard forgets the values of all series from this step on.
                    again = (n for n in range(kept) if series.steps[n] >= first)
                    indexes = [*again, *indexes]  # type: ignore[assignment]
                for start in range(0, len(indexes), _BATCH):
                    part = indexes[start : start + _BATCH]
                    file.write(
                        encode((series.steps[n], series.times[n], series.values[n]) for n in part)
                    )
            file.flush()
            os.fsync(file.fileno())
            size_bytes = file.tell()
        reached = progress.done(run.series, size_bytes=size_bytes)
        if reached != known:
            places.write_progress(folder / PROGRESS, reached)
    return records.Exported(run=run, added=pending.added, place=str(folder))

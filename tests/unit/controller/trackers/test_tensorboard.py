"""Exports to TensorBoard, again and again, and after a kill."""

from __future__ import annotations

import dataclasses
import pathlib
import random

import pytest

from orchestrator import errors, jobs
from orchestrator.controller.trackers import tensorboard
from orchestrator.trackers import records, series
from tests import builders
from tests.unit.trackers import event_reader
from tests.unit.trackers.test_series import row

RUN = "demo.abcd00000001"


def make_run(count: int, attempts: int = 1) -> records.Run:
    """Return a run whose attempts each go back by three steps."""
    rows = []
    for attempt in range(attempts):
        first = attempt * (count - 3)
        for step in range(first, first + count):
            shared = {"step": step, "attempt": attempt}
            rows.append(row(len(rows), "loss", step + attempt / 8, **shared))
            if step % 2:
                rows.append(row(len(rows), "val", step - attempt / 8, **shared))
    return records.Run(
        id="abcd00000001",
        name=RUN,
        group="lr",
        created=1.7e9,
        job=builders.make_job(),
        tracking=jobs.Tracking(),
        parameters={},
        series=series.of_chain(rows, {1: 0}, 1.7e9),
    )


def expected(run: records.Run) -> dict[str, list[tuple[int, float, float]]]:
    return {
        each.name: [*zip(each.steps, each.times, each.values, strict=True)] for each in run.series
    }


def read(folder: pathlib.Path) -> dict[str, list[tuple[int, float, float]]]:
    (file,) = folder.glob(f"lr/{RUN}/events.out.tfevents.*")
    found = event_reader.scalars(file.read_bytes())
    return {name: sorted(points) for name, points in found.items()}


def test_an_export_adds_what_is_new(tmp_path: pathlib.Path) -> None:
    for run, added in (
        (make_run(8), 12),
        (make_run(8), 0),
        (make_run(11), 3 + 1),
        # Attempts that run steps again.
        (make_run(11, 2), 11 + 5),
        (make_run(11, 3), 11 + 5),
        (make_run(11, 3), 0),
    ):
        assert tensorboard.export(run, tmp_path).added == added
        assert read(tmp_path) == expected(run)
    # A tracked job may have any name.
    strange = dataclasses.replace(run, name="../x")
    assert tensorboard.export(strange, tmp_path).place == str(tmp_path / "lr" / ".._x")
    # Parsed again with another result.
    run.series[0].values[4] = 99.0
    tensorboard.export(run, tmp_path)
    assert read(tmp_path) == expected(run)


def test_an_export_that_was_killed_is_repeated(tmp_path: pathlib.Path) -> None:
    tensorboard.export(make_run(8), tmp_path)
    folder = tmp_path / "lr" / RUN
    (file,) = folder.glob("events.*")
    (kept, progress), run = (file.read_bytes(), (folder / "orchestrator.json").read_bytes()), None
    for attempts in (1, 2):
        run = make_run(20, attempts)
        tensorboard.export(run, tmp_path)
        whole = file.read_bytes()
        # It was killed after any byte: the file is longer than its progress says.
        for size in random.Random(attempts).sample(range(len(kept), len(whole)), 20):
            file.write_bytes(whole[:size])
            (folder / "orchestrator.json").write_bytes(progress)
            tensorboard.export(run, tmp_path)
            assert read(tmp_path) == expected(run)
    # Without its progress, or with less than that says, it is written anew.
    for break_it in ((folder / "orchestrator.json").unlink, lambda: file.write_bytes(b"")):
        break_it()
        tensorboard.export(run, tmp_path)
        assert read(tmp_path) == expected(run)


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "lr").write_text("")
    with pytest.raises(errors.OrchestratorError) as raised:
        tensorboard.export(make_run(8), tmp_path)
    place = tmp_path / "lr" / RUN
    message = f"cannot write {place}: Not a directory; choose another --output"
    assert str(raised.value) == message


def test_links_of_others_are_not_followed(tmp_path: pathlib.Path) -> None:
    precious, run = tmp_path / "precious", make_run(8)
    precious.mkdir()
    (precious / "file").write_text("x")
    output = tmp_path / "out"
    tensorboard.export(run, output)
    (file,) = (output / "lr" / RUN).glob("events.*")
    for path, target in (
        (file, precious / "file"),
        (output / "lr" / RUN / ".orchestrator.lock", precious / "new"),
        (output / "lr" / RUN, precious),
        (output / "lr", precious),
    ):
        path.rename(tmp_path / "aside")
        path.symlink_to(target)
        with pytest.raises(errors.OrchestratorError):
            tensorboard.export(run, output)
        path.unlink()
        (tmp_path / "aside").rename(path)
    assert [path.name for path in precious.iterdir()] == ["file"]
    assert (precious / "file").read_text() == "x"
    # A progress that another program wrote counts as none.
    (output / "lr" / RUN / "orchestrator.json").write_text('{"series": {}, "size_bytes": "x"}')
    assert tensorboard.export(run, output).added == 12

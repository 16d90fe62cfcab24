"""`metrics` of one job in a database with a million values."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping

from db.sqlite.database import SqliteDatabase
from db.stores.metrics import metrics as stored_metrics
from orchestrator import metrics
from tests.benchmarks import ratios, startup

#: Metrics of one log line.
NAMES = ("throughput", "loss", "learning_rate", "grad_norm", "memory", "step_time", "mfu", "step")
#: A job without metrics.
BARE = 150


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--rows", type=int, default=1_000_000)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if a ratio exceeds its budget."""
    with tempfile.TemporaryDirectory() as folder:
        many, one = (pathlib.Path(folder, name) for name in ("many", "one"))
        each = arguments.rows // 100
        result = _measured(many, {row: each for row in range(1, 101)}, arguments, _OF_MANY)
        result += _measured(one, {1: arguments.rows}, arguments, _OF_ONE)
    print(ratios.table(result))
    return 0 if all(ratio.kept for ratio in result) else 1


#: Arguments after the job -> budget.
_OF_MANY: Mapping[str, float | None] = {"": 1.5, "--json": 1.5, "--stat all": 1.5, "--last 1": 1.5}
_OF_ONE: Mapping[str, float | None] = {
    "--last 1": 1.5,
    "--points 100 --name loss": 1.5,
    "--stat all --name loss": None,
    "--stat all": None,
}


def _measured(
    folder: pathlib.Path,
    counts: Mapping[int, int],
    arguments: argparse.Namespace,
    asked: Mapping[str, float | None],
) -> list[ratios.Ratio]:
    folder.mkdir()
    environ = startup.filled(folder, 200)
    fill(folder, counts)
    whole, mine = sum(counts.values()), counts[1]
    return [
        ratios.measure(
            f"`{f'metrics JOB {options}'.rstrip()}` of {mine:,} in {whole:,} numbers"
            " / of a job with none",
            _metrics(environ, "@1", *options.split()),
            _metrics(environ, f"@{BARE}"),
            repeats=arguments.repeats,
            budget=budget,
        )
        for options, budget in asked.items()
    ]


def _metrics(environ: Mapping[str, str], *argv: str) -> Callable[[], object]:
    def run_it() -> None:
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "metrics", *argv],
            env={**os.environ, **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    return run_it


def fill(folder: pathlib.Path, counts: Mapping[int, int]) -> None:
    """Store values like refreshes: a few lines of each job at a time."""
    with SqliteDatabase(folder / "orchestrator.db") as database, database.writing() as writing:
        store = stored_metrics.MetricStore(writing)
        steps = dict.fromkeys(counts, 0)
        while any(steps[row] * len(NAMES) < count for row, count in counts.items()):
            for row, count in counts.items():
                last = min(steps[row] + 1000, -(-count // len(NAMES)))
                store.add(row, list(_lines(row, steps[row], last)))
                steps[row] = last


def _lines(row: int, first: int, last: int) -> Iterator[metrics.ParsedLine]:
    names = tuple((name, "images/second" if name == "throughput" else "") for name in NAMES)
    for step in range(first, last):
        yield metrics.ParsedLine(
            path=f"/scratch/runs/{row}/{row}.out",
            source="log:demo",
            attempt=0,
            rank=None,
            world_size=8,
            names=names,
            step=step,
            epoch=step // 100,
            time=None,
            line=step,
            values=(1000.0 + step % 7, 9.0 / (step + 1), 1e-4, 0.5, 31.5, 0.25, 0.4, float(step)),
        )

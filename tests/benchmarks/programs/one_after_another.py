"""Time single submissions of SPEC in one process, alternating with sbatch of SCRIPT, COUNT times.

Also times the minimal work of a durable submission. Prints a JSON list of each kind's seconds.
"""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import time

import in_process

from orchestrator.files import run_folder
from orchestrator.processes import process


def sbatch(script: str) -> None:
    """Submit with sbatch alone."""
    subprocess.run(["sbatch", "--parsable", script], check=True, stdout=subprocess.DEVNULL)


class Floor:
    """A run folder, a durable row, sbatch tied to this process, and its output in the database."""

    def __init__(self, folder: pathlib.Path, script: str) -> None:
        self._folder = folder
        self._script = script
        folder.mkdir(exist_ok=True)
        self._database = sqlite3.connect(folder / "floor.db", isolation_level=None)
        for line in (
            "PRAGMA journal_mode=WAL",
            "CREATE TABLE IF NOT EXISTS rows (text TEXT)",
        ):
            self._database.execute(line)

    def submit(self) -> None:
        text = pathlib.Path(self._script).read_text()
        copies = {"spec.json": text, "provenance.json": text}
        token = run_folder.new_token("abcd")
        run_folder.create(
            self._folder,
            "floor",
            token,
            {"script.sbatch": text},
            copies=copies,
        )
        self._store(text)
        argv = ["sbatch", "--parsable", self._script]
        self._store(process.run(argv, 60, os.environ, die_with_parent=True).stdout, durable=False)

    def _store(self, text: str, *, durable: bool = True) -> None:
        self._database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO rows VALUES (?)", (text,))
        self._database.execute("COMMIT")


if __name__ == "__main__":
    spec, script, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = in_process.open_context()
    floor = Floor(pathlib.Path("floor").absolute(), script)
    kinds = (
        lambda: in_process.submit_spec(context, spec),
        lambda: sbatch(script),
        floor.submit,
    )
    seconds: list[list[float]] = [[] for _ in kinds]
    for number in range(repeats + 1):
        for kind, kept in zip(kinds, seconds, strict=True):
            began = time.perf_counter()
            kind()
            # The first run opens the database and queries Slurm's configuration.
            if number:
                kept.append(time.perf_counter() - began)
    print(json.dumps(seconds))

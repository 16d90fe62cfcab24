"""Error files and logs of single ranks."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import rank_files
from orchestrator.diagnosis import log_rules
from orchestrator.diagnosis.records import Finding
from tests import builders

RULES = log_rules.load_shipped()
TRACEBACK = 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n'


@pytest.fixture
def job(tmp_path: Path) -> jobs.Job:
    return dataclasses.replace(builders.make_job(attempt=1), run_dir=str(tmp_path))


def findings(job: jobs.Job | None, named: dict[str, int | None] | None = None) -> list[Finding]:
    return rank_files.findings(job, named or {}, RULES, deadlines.NEVER)


def keep(folder: Path, *, error: str = "", log: str = "") -> Path:
    folder.mkdir(parents=True)
    if error:
        extra = {"py_callstack": f"{TRACEBACK}{error}\n", "timestamp": "1700000000"}
        content = {"message": {"message": error, "extraInfo": extra}}
        (folder / "error.json").write_text(json.dumps(content))
    (folder / "stderr.log").write_text(f"{TRACEBACK}{log}\n" if log else "")
    (folder / "stdout.log").write_text("step 1\n")
    return folder


def test_logs_of_the_ranks_of_one_node(job: jobs.Job, tmp_path: Path) -> None:
    attempt = tmp_path / "torchrun/0.1/x_a1b2"
    keep(attempt / "attempt_0/0", log="KeyError: 'survived by a restart of the ranks'")
    keep(attempt / "attempt_1/0")
    rank = keep(attempt / "attempt_1/1", log="ValueError: no label")
    # Of another attempt, and of another task.
    keep(tmp_path / "torchrun/0.0/x_c3d4/attempt_0/0", log="KeyError: 1")
    keep(tmp_path / "torchrun/7.1/x_c3d4/attempt_0/0", log="KeyError: 2")
    (finding,) = findings(job)
    assert (finding.cause, finding.rank) == ("python_exception", 1)
    assert finding.summary == "ValueError in /a.py, line 1: no label"
    assert (finding.evidence.path, finding.evidence.line) == (str(rank / "stderr.log"), 3)
    assert finding.traceback is not None and finding.traceback.rank == 1


def test_error_files_of_two_nodes(job: jobs.Job, tmp_path: Path) -> None:
    """The number of a folder is then not that of a rank, unless the log names it."""
    keep(tmp_path / "torchrun/0.1/x_a1b2/attempt_0/0", error="ValueError: of rank 0")
    second = keep(tmp_path / "torchrun/0.1/x_c3d4/attempt_0/0", error="ValueError: of rank 1")
    assert [each.rank for each in findings(job)] == [None, None]
    found = findings(job, {str(second / "error.json"): 1})
    assert (found[0].rank, found[0].summary) == (1, "ValueError in /a.py, line 1: of rank 1")
    assert found[0].evidence.path == str(second / "error.json")


def test_error_files_without_torchrun(job: jobs.Job, tmp_path: Path) -> None:
    for name, error in (("0.1.3", "of rank 3"), ("0.0.2", "of attempt 0"), ("1.1.2", "of task 1")):
        file = keep(tmp_path / name, error=f"ValueError: {error}") / "error.json"
        file.rename(tmp_path / f"error.{name}.json")
    (finding,) = findings(job)
    assert (finding.rank, finding.summary) == (3, "ValueError in /a.py, line 1: of rank 3")


def test_files_that_a_log_must_not_name(tmp_path: Path) -> None:
    folder = keep(tmp_path / "x/attempt_0/0", error="ValueError: no")
    for name in (
        str(folder / "error.json").removeprefix("/"),
        f"{folder}/../0/error.json",
        str(keep(tmp_path / "home/private", error="ValueError: no") / "error.json"),
    ):
        assert findings(None, {name: 0}) == []
    assert len(findings(None, {str(folder / "error.json"): 0})) == 1


def test_damaged_and_hostile_files(job: jobs.Job, tmp_path: Path) -> None:
    folder = keep(tmp_path / "torchrun/0.1/x_a1b2/attempt_0/0", log="ValueError: no label")
    os.mkfifo(folder / "error.json")
    (folder / "stdout.log").unlink()
    (folder / "stdout.log").symlink_to("/dev/zero")
    other = keep(tmp_path / "torchrun/0.1/x_a1b2/attempt_0/1")
    (other / "error.json").write_text("[" * 100_000)
    (tmp_path / "torchrun/0.1/x_a1b2/attempt_x").write_text("")
    assert [finding.rank for finding in findings(job)] == [0]


def test_the_deadline_holds(job: jobs.Job, tmp_path: Path) -> None:
    keep(tmp_path / "torchrun/0.1/x_a1b2/attempt_0/0", log="ValueError: no label")
    over = deadlines.Deadline(at=0.0, clock=lambda: 1.0)
    assert rank_files.findings(job, {}, RULES, over) == []

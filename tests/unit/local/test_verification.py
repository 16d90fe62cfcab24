"""Checks before a queued local job is started."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.local import machine, processes, records, spool, submitted, verification
from tests.unit.local import test_machine

SCRIPT = b"#!/bin/bash\ntrue\n"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "x.abcd00000001"
    folder.mkdir(mode=0o700)
    (folder / "script.sbatch").write_bytes(SCRIPT)
    (folder / "script.sbatch").chmod(0o600)
    return folder


@pytest.fixture
def hashes() -> list[str]:
    return []


@pytest.fixture
def line(tmp_path: Path, run_dir: Path, hashes: list[str]) -> spool.Spool:
    """A line of one job that has its slot."""
    here = machine.Machine(folder=tmp_path / "local", host="lap")
    paths = {"run_dir": str(run_dir), "script": str(run_dir / "script.sbatch")}
    request = dataclasses.replace(test_machine.REQUEST, **paths)  # type: ignore[arg-type]
    here.submit(request, lambda job_id, _: (f"/runs/{job_id}.out", None), hashes.append)
    (entry,) = here.spool.queue()
    here.spool.put(dataclasses.replace(entry, given=("slot0",)))
    return here.spool


@pytest.fixture
def expected(run_dir: Path, line: spool.Spool, hashes: list[str]) -> verification.Submitted:
    return verification.Submitted(
        request_sha256=hashes[0],
        script_sha256=hashlib.sha256(SCRIPT).hexdigest(),
        run_dir=str(run_dir),
        stdout_path="/runs/local-1.out",
        stderr_path=None,
    )


def entry_of(line: spool.Spool) -> records.Entry:
    (entry,) = line.queue()
    return entry


def test_the_hash_covers_each_field_of_the_request(
    line: spool.Spool, expected: verification.Submitted, hashes: list[str]
) -> None:
    data = line.request_data("abcd00000001")
    assert data is not None and [verification.request_hash(data)] == hashes
    assert verification.verify(line, entry_of(line), expected) == line.request("abcd00000001")
    path = line.folder / "requests" / "abcd00000001.json"
    for name in data:
        path.write_text(json.dumps({**data, name: "changed"}))
        assert verification.request_hash(json.loads(path.read_text())) not in hashes


def test_a_request_of_an_earlier_version(
    line: spool.Spool, expected: verification.Submitted
) -> None:
    path = line.folder / "requests" / "abcd00000001.json"
    request = line.request("abcd00000001")
    data = {**json.loads(path.read_text()), "format": 1}
    path.write_text(json.dumps(data))
    submitted_then = dataclasses.replace(expected, request_sha256=verification.request_hash(data))
    assert verification.verify(line, entry_of(line), submitted_then) == request


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"given": ("slot0", "slot0")}, "given"),
        ({"given": ("7",)}, "given"),
        ({"given": ()}, "given"),
        ({"restart_count": -1}, "restart_count"),
        ({"stderr_path": "/x"}, "stderr_path"),
        ({"may_requeue": False}, "may_requeue"),
    ],
)
def test_a_changed_entry_is_refused(
    line: spool.Spool, expected: verification.Submitted, changes: dict[str, object], named: str
) -> None:
    entry = dataclasses.replace(entry_of(line), **changes)  # type: ignore[arg-type]
    with pytest.raises(
        verification.DifferentError, match=rf"changed after the submission \({named}\)"
    ):
        verification.verify(line, entry, expected)


def test_a_requeued_job_is_accepted(line: spool.Spool, expected: verification.Submitted) -> None:
    verification.verify(line, dataclasses.replace(entry_of(line), restart_count=3), expected)


def test_the_verified_script_runs_when_its_folder_is_renamed(
    line: spool.Spool, expected: verification.Submitted, run_dir: Path
) -> None:
    request = verification.verify(line, entry_of(line), expected)
    with verification.opened(request, expected) as script:
        run_dir.rename(run_dir.with_name("away"))
        run_dir.mkdir()
        (run_dir / "script.sbatch").write_text("#!/bin/evil\n")
        assert Path(script.path).read_bytes() == SCRIPT
        assert script.first_line == b"#!/bin/bash"
    assert not os.path.exists(script.path)


def test_a_script_that_is_a_symbolic_link_is_refused(
    line: spool.Spool, expected: verification.Submitted, run_dir: Path
) -> None:
    request = verification.verify(line, entry_of(line), expected)
    (run_dir / "script.sbatch").rename(run_dir / "other")
    (run_dir / "script.sbatch").symlink_to("other")
    with pytest.raises(verification.DifferentError, match="is a symbolic link"):
        with verification.opened(request, expected):
            pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restart_count", "a[$(touch x)]"),
        ("restart_count", True),
        ("task", "1"),
        ("queued_at", float("nan")),
        ("given", [1]),
        ("state", "RAN"),
        ("keeper", {"pid": 1, "start_ticks": None, "boot_id": "x"}),
        ("ended", [{"state": "FAILED"}]),
        ("number", 2),
    ],
)
def test_an_entry_of_another_type_is_damaged(line: spool.Spool, name: str, value: object) -> None:
    path = line.folder / "queue" / "1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(errors.OrchestratorError, match=r"queue/1\.json is damaged \("):
        line.queue()


def test_reading_the_database_is_retried(
    line: spool.Spool, expected: verification.Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = processes.identify(os.getpid())
    entry = line.put(dataclasses.replace(entry_of(line), runner=own))
    notes: list[str] = []
    pauses: list[float] = []

    def ask(*_: object) -> verification.Submitted:
        notes.append(entry_of(line).note)
        if len(notes) < 3:
            raise submitted._UnavailableError(f"busy {len(notes)}")
        return expected

    monkeypatch.setattr(submitted, "_read_in_child", ask)
    monkeypatch.setattr(submitted, "_wait", lambda *arguments: pauses.append(1.0))
    assert submitted.read(line, entry, lambda entry: expected) == expected
    assert notes == ["", "waits for the database: busy 1", "waits for the database: busy 2"]
    assert entry_of(line).note == ""
    assert len(pauses) == 2
    notes.clear()

    def ask_while_it_is_removed(*_: object) -> verification.Submitted:
        (line.folder / "queue" / "1.json").unlink()
        raise submitted._UnavailableError("busy")

    monkeypatch.setattr(submitted, "_read_in_child", ask_while_it_is_removed)
    with pytest.raises(submitted.GoneError):
        submitted.read(line, entry, lambda entry: expected)

"""The beginning and the end of a log, with true line numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.clocks import deadlines
from orchestrator.logs import files, head_and_tail
from tests import builders


def banner(attempt: int) -> str:
    return (
        f"=== orchestrator demo job 7 task 0 attempt {attempt} on n1 at 2026-01-01T00:00:00Z ===\n"
    )


def limit(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr(head_and_tail, "HEAD_BYTES", size_bytes)
    monkeypatch.setattr(head_and_tail, "TAIL_BYTES", size_bytes)


def test_lines_between_head_and_tail_are_only_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 100)
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    scan = head_and_tail.Scan()
    read_lines = list(head_and_tail.scan(str(path), scan))
    assert [line.number for line in read_lines[:3]] == [1, 2, 3]
    assert read_lines[-1].number == 1000
    assert read_lines[-1].text == "line 1000"
    assert scan.skipped_bytes == path.stat().st_size - 200
    assert all(line.text == f"line {line.number}" for line in read_lines)


@pytest.mark.parametrize("size_bytes", range(30, 60))
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_only_whole_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int, end: str
) -> None:
    limit(monkeypatch, size_bytes)
    path = tmp_path / "log"
    whole = [f"loss {number / 1000}" for number in range(1000, 1100)]
    path.write_text("".join(f"{line}{end}" for line in whole), newline="")
    read_lines = [line.text for line in head_and_tail.scan(str(path), head_and_tail.Scan())]
    count = read_lines.index("loss 1.099")
    head = [line for line in read_lines if line < "loss 1.05"]
    assert head == whole[: len(head)]
    assert read_lines == [*head, *whole[len(head) - count - 1 :]]
    # Not a line more is left out than necessary.
    assert len(end.join(whole[: len(head) + 1]) + end) > size_bytes
    assert len(end.join(whole[len(head) - count - 2 :]) + end) > size_bytes


def test_lines_of_one_attempt(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = f"before\n{banner(0)}one\n{banner(1)}two\n{banner(1)}three\n{banner(2)}four"
    path.write_text(text)

    def of(attempt: int) -> list[tuple[int, str]]:
        read_lines = head_and_tail.scan(
            str(path), head_and_tail.Scan(), job=builders.make_job(attempt=attempt)
        )
        return [(line.number, line.text) for line in read_lines if not line.text.startswith("===")]

    assert of(0) == [(3, "one")]
    # A log that a job prints of itself begins no attempt.
    assert of(1) == [(5, "two"), (7, "three")]
    assert of(2) == [(9, "four")]
    # Without a banner the whole file counts.
    assert len(of(3)) == 5


def test_an_unreadable_log_is_a_problem(tmp_path: Path) -> None:
    scan = head_and_tail.Scan()
    assert list(head_and_tail.scan(str(tmp_path / "none"), scan)) == []
    assert scan.problem == files.NO_LOG_YET
    assert list(head_and_tail.scan(str(tmp_path), scan)) == []
    assert scan.problem == "not a regular file but a folder"


def test_the_deadline_ends_counting_and_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 50)
    path = tmp_path / "log"
    path.write_text("line\n" * 1000)
    now = 0.0

    def read(seconds: float, *, pace: float) -> tuple[head_and_tail.Scan, list[int]]:
        """Read with a clock that advances with each line."""
        nonlocal now
        now = 0.0
        scan, numbers = head_and_tail.Scan(), []
        deadline = deadlines.Deadline(at=seconds, clock=lambda: now)
        for line in head_and_tail.scan(str(path), scan, deadline=deadline):
            numbers.append(line.number)
            now += pace
        return scan, numbers

    scan, numbers = read(10.0, pace=0.1)
    assert not scan.is_cut and scan.uncounted_bytes == 0 and numbers[-1] == 1000
    # Reading the head uses up the time.
    scan, numbers = read(10.0, pace=1.0)
    assert scan.is_cut and scan.uncounted_bytes == 4900 and numbers == list(range(1, 11))


def test_holes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(f"{banner(0)}one\n".encode())
        file.seek(2**40)
        file.write(b"\ntwo\n")
    scan = head_and_tail.Scan()
    read_lines = list(head_and_tail.scan(str(path), scan, job=builders.make_job()))
    assert [(line.number, line.text) for line in read_lines[1:]] == [(2, "one"), (4, "two")]
    assert scan.skipped_bytes > 2**39 and scan.uncounted_bytes == 0


def test_a_log_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\n" * 20_000)
    scan = head_and_tail.Scan()
    found = head_and_tail.scan(str(path), scan, deadline=deadlines.NEVER.within(60.0))
    assert next(found).text == "first"
    path.write_text("first\n" * 12_000 + "cut")
    assert [line.text for line in found][-1] == "cut"
    assert not scan.is_cut

"""Continuing to read a log after the last read."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import metrics
from orchestrator.logs import lines, reading
from tests import builders

BANNER = lines.banner_of(builders.make_job(job_id="4711", name="digits"))


def banner(attempt: int, job_id: str = "4711", name: str = "digits") -> str:
    return (
        f"=== orchestrator {name} job {job_id} task 0 attempt {attempt} "
        "on n1 at 2026-11-21T08:00:00+00:00 ==="
    )


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "4711.out"


def start(log: pathlib.Path) -> metrics.LogCursor:
    return metrics.LogCursor(path=str(log))


def numbered_lines(chunk: reading.Chunk) -> list[tuple[int, str]]:
    return [(line.number, line.text) for line in chunk.lines]


def append(log: pathlib.Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_only_new_lines_are_read(log: pathlib.Path):
    log.write_text("one\n\ntw")
    first = reading.read(start(log))
    assert numbered_lines(first) == [(1, "one")]
    append(log, "o\nthree\n")
    second = reading.read(first.cursor)
    assert numbered_lines(second) == [(3, "two"), (4, "three")]
    assert numbered_lines(reading.read(second.cursor)) == []


def test_an_unfinished_line_is_returned_once_at_the_end_of_the_job(log: pathlib.Path):
    log.write_text("one\nslurmstepd: error: ***")
    chunk = reading.read(start(log), final=True)
    assert numbered_lines(chunk) == [(1, "one"), (2, "slurmstepd: error: ***")]
    append(log, " JOB 4711\n" + banner(1) + "\n")
    after = reading.read(chunk.cursor, banner=BANNER)
    assert [(line.number, line.attempt) for line in after.lines] == [(3, 1)]


def test_absent_gone_and_unreadable_logs_are_notes(log: pathlib.Path):
    chunk = reading.read(start(log))
    assert (chunk.lines, chunk.more, chunk.note) == ([], False, "no log yet")
    assert chunk.cursor == start(log)
    log.write_text("one\n")
    cursor = reading.read(start(log)).cursor
    log.unlink()
    chunk = reading.read(cursor)
    assert chunk.note == f"{log} is gone; it was read up to byte 4"
    assert chunk.cursor == cursor
    # Without O_NONBLOCK this would hang.
    os.mkfifo(log)
    assert reading.read(cursor).note == f"cannot read {log}: not a regular file but a FIFO"
    log.unlink()
    log.mkdir()
    assert reading.read(cursor).note == f"cannot read {log}: not a regular file but a folder"


def test_a_truncated_log_is_read_again_in_the_same_attempt(log: pathlib.Path):
    log.write_text(banner(2) + "\none\n")
    cursor = reading.read(start(log), banner=BANNER).cursor
    log.write_text("two\n")
    chunk = reading.read(cursor, banner=BANNER)
    assert [(line.number, line.text, line.attempt) for line in chunk.lines] == [(1, "two", 2)]
    assert chunk.note == f"{log} was truncated: read again from its beginning"


def test_a_rewritten_log_with_the_same_inode_is_detected(log: pathlib.Path):
    log.write_text(banner(0) + "\none\n")
    cursor = reading.read(start(log), banner=BANNER).cursor
    inode = log.stat().st_ino
    log.write_text(banner(1) + "\nlonger than it was before\n")
    assert log.stat().st_ino == inode
    chunk = reading.read(cursor, banner=BANNER)
    assert [line.attempt for line in chunk.lines] == [1, 1]
    assert chunk.note == f"{log} was replaced: read again from its beginning"


def test_another_device_number_is_the_same_file(log: pathlib.Path):
    # NFS: each login node has its own.
    log.write_text("one\n")
    cursor = reading.read(start(log)).cursor
    moved = dataclasses.replace(cursor, device=cursor.device + 1)
    append(log, "two\n")
    chunk = reading.read(moved)
    assert (numbered_lines(chunk), chunk.note) == ([(2, "two")], "")


def test_a_renamed_log_continues_in_the_old_file(log: pathlib.Path):
    with log.open("wb", buffering=0) as slurm:
        slurm.write(b"one\ntw")
        cursor = reading.read(metrics.LogCursor(path=str(log))).cursor
        log.rename(f"{log}.1")
        log.touch()
        slurm.write(b"o\nthr")
        chunk = reading.read(cursor)
        assert (numbered_lines(chunk), chunk.more) == ([(2, "two")], False)
        slurm.write(b"ee\n")
    chunk = reading.read(chunk.cursor)
    assert (numbered_lines(chunk), chunk.more) == ([(3, "three")], False)
    log.write_bytes(b"four\n")
    old = reading.read(chunk.cursor)
    assert (numbered_lines(old), old.more) == ([], True)
    assert numbered_lines(reading.read(old.cursor)) == [(1, "four")]


def test_a_rotated_log_is_finished_before_the_new_one(log: pathlib.Path):
    log.write_text(banner(3) + "\none\n")
    cursor = reading.read(start(log), banner=BANNER).cursor
    append(log, "two\nthree")
    log.rename(f"{log}.1")
    log.write_text("four\n")
    old = reading.read(cursor, banner=BANNER)
    assert numbered_lines(old) == [(3, "two"), (4, "three")]
    assert (old.note, old.more) == (f"{log} was rotated: read to the end of {log}.1", True)
    new = reading.read(old.cursor, banner=BANNER)
    assert [(line.number, line.text, line.attempt) for line in new.lines] == [(1, "four", 3)]
    assert (new.more, new.note) == (False, "")


LONG = "".join(f"line {number} of the log\n" for number in range(40))


def test_a_copied_and_truncated_log_is_read_to_its_end_first(log: pathlib.Path):
    log.write_text(LONG)
    cursor = reading.read(start(log)).cursor
    append(log, "two\n")
    # As logrotate's copytruncate does: the copy has another inode.
    pathlib.Path(f"{log}.1").write_bytes(log.read_bytes())
    log.write_text("three\n")
    old = reading.read(cursor)
    assert numbered_lines(old) == [(41, "two")]
    assert numbered_lines(reading.read(old.cursor)) == [(1, "three")]


def test_a_restored_log_is_not_read_again(log: pathlib.Path):
    log.write_text(LONG)
    cursor = reading.read(start(log)).cursor
    log.rename(f"{log}.moved")
    log.write_text(LONG + "more\n")
    chunk = reading.read(cursor)
    assert (numbered_lines(chunk), chunk.note) == ([(41, "more")], "")
    assert numbered_lines(reading.read(chunk.cursor)) == []


def test_a_hole_separates_text(log: pathlib.Path):
    with log.open("wb") as file:
        file.write(b"one\nloss 1")
        file.seek(2**40)
        file.write(b"2\ntwo\n")
        file.truncate(2**41)
    chunk = reading.read(start(log), final=True)
    assert numbered_lines(chunk) == [(1, "one"), (2, "loss 1"), (2, "2"), (3, "two")]
    assert not chunk.more and chunk.cursor.offset_bytes == 2**41
    assert chunk.read_bytes < 2**21
    with log.open("r+b") as file:
        file.seek(2**41)
        file.write(b"\nthree\n")
    assert numbered_lines(reading.read(chunk.cursor)) == [(5, "three")]


def test_lines_belong_to_the_attempt_of_the_last_banner(log: pathlib.Path):
    log.write_text(
        "of an older job with the same ID\n"
        + banner(0, job_id="4710")
        + f"\n{banner(0, name='digits.ab12cd34ef56')}\nzero\n{banner(1)}\none\n"
        # A job that prints its own old log, and one that prints a banner in the middle of a line.
        + f"{banner(0)}\nold {banner(7)}\nstill one\n"
    )
    chunk = reading.read(start(log), banner=BANNER)
    attempts = {line.text: line.attempt for line in chunk.lines}
    assert attempts["of an older job with the same ID"] is None
    assert attempts[banner(0, job_id="4710")] is None
    assert (attempts["zero"], attempts["one"], attempts["still one"]) == (0, 1, 1)


def test_banner_of_a_named_job():
    pattern = lines.banner_of(builders.make_job(job_id="4711", name="a.b"))
    assert pattern.fullmatch(banner(12, name="a.b"))["attempt"] == "12"
    assert pattern.fullmatch(banner(0, name="a.b.ab12cd34ef56"))
    assert not pattern.fullmatch(banner(0, name="axb"))


BYTES = st.binary(max_size=60) | st.lists(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"\0", b"a", b"0123456789", "µ".encode(), b"\x1b[1m", b"\xff"]
    ),
    max_size=40,
).map(b"".join)


@settings(deadline=None, max_examples=60)
@given(
    data=BYTES,
    cuts=st.lists(st.integers(0, 80), max_size=6),
    crashes=st.lists(st.booleans(), max_size=12),
    limit=st.integers(1, 30),
)
def test_parts_and_crashes_do_not_change_the_lines(
    data: bytes, cuts: list[int], crashes: list[bool], limit: int
):
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(lines, "LINE_CAP_BYTES", 8),
    ):
        whole, grown = pathlib.Path(folder, "whole"), pathlib.Path(folder, "grown")
        whole.write_bytes(data)
        expected = reading.read(start(whole), final=True)
        assert not expected.more

        received: list[reading.Line] = []
        cursor = start(grown)
        edges = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
        crash = iter(crashes)
        for begin, end in zip(edges, [*edges[1:], len(data)], strict=True):
            with grown.open("ab") as file:
                file.write(data[begin:end])
            has_more = True
            while has_more:
                chunk = reading.read(cursor, final=end == len(data), limit_bytes=limit)
                if next(crash, False):
                    continue  # Nothing was stored: the same is read again.
                assert chunk.note == ""
                has_more = chunk.more
                received += chunk.lines
                cursor = chunk.cursor
                if end == len(data) and not has_more:
                    break
            if end == len(data):
                break
        assert received == expected.lines
        assert cursor.offset_bytes == len(data)
        assert [line.number for line in received] == sorted(line.number for line in received)


MEASURE = """
import resource, sys
from orchestrator import metrics
from orchestrator.logs import reading
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cursor, lines, more = metrics.LogCursor(path=sys.argv[1]), 0, True
while more:
    chunk = reading.read(cursor, final=True)
    cursor, more = chunk.cursor, chunk.more
    lines += len(chunk.lines)
print(lines, cursor.offset_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("block", "times", "lines"),
    [
        # Four bytes a character in Python's strings.
        (b"step 1 loss 0.5 \xf0\x9f\x94\xa5" + b" " * 180 + b"\n", 120_000, 120_000),
        (b"x" * 1_000_000, 25, 1),
        (b"a\n" * 500, 1_000, 500_000),
        (b"\0" * 1_000_000, 25, 0),
    ],
    ids=["wide", "no line end", "short", "hole"],
)
def test_memory_is_bounded(log: pathlib.Path, block: bytes, times: int, lines: int):
    with log.open("wb") as file:
        for _ in range(times):
            file.write(block)
    command = [sys.executable, "-c", MEASURE, str(log)]
    root = pathlib.Path(reading.__file__).parents[2]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    read, offset, grown_kib = map(int, answer.stdout.split())
    assert (read, offset) == (lines, log.stat().st_size)
    assert grown_kib < 64 * 1024

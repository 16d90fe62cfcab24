"""Windows of a log, whatever it contains."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.logs import windows


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> windows.LineCounter:
    # Small steps: the lines of these logs lie in several.
    monkeypatch.setattr(windows, "_STEP_BYTES", 7)
    return windows.LineCounter()


@given(lines=st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), max_size=30))
def test_lines_are_counted_from_any_offset(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(content)
    before = windows._STEP_BYTES
    windows._STEP_BYTES = 7
    try:
        handle = os.open(path, os.O_RDONLY)
        counter, status = windows.LineCounter(), path.stat()
        for offset in range(len(content), -1, -3):
            assert counter.before(handle, status, offset) == content[:offset].count(b"\n")
        at = 0
        for number, line in enumerate(lines, 1):
            assert counter.offset_of(handle, status, number) == at
            at += len(line) + 1
        assert counter.offset_of(handle, status, len(lines) + 5) == len(content)
        os.close(handle)
    finally:
        windows._STEP_BYTES = before


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b" 10 %\r 20 %\r", " 20 %"),
        (b"bell \x07 and \xff", "bell \\x07 and \ufffd"),
        ("\u202eevil".encode(), "\\u202eevil"),
        (b"x" * 20_000, "x" * 16_384 + " … 3,616 more bytes"),
    ],
)
def test_lines_are_shown_as_text(line: bytes, text: str) -> None:
    assert windows.shown(line) == text


def test_pages_join(tmp_path: Path, counter: windows.LineCounter) -> None:
    path = tmp_path / "log"
    lines = [f"line {number}" for number in range(1, 1001)]
    path.write_text("\n".join(lines) + "\nhalf")
    newest = windows.newest(str(path), counter)
    assert (newest.first_line, newest.lines, newest.partial) == (802, lines[801:], "half")
    earlier = windows.before(str(path), newest.begin_bytes, counter)
    assert earlier.lines == lines[601:801]
    assert windows.at(str(path), earlier.end_bytes, counter).lines == newest.lines
    around = windows.around(str(path), 500, counter)
    assert (around.first_line, around.lines) == (400, lines[399:599])


def test_what_was_added(tmp_path: Path, counter: windows.LineCounter) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    first = windows.newest(str(path), counter)
    assert (first.lines, first.partial, first.end_bytes) == (["one"], "tw", 4)
    with path.open("a") as out:
        out.write("o\nthree\n")
    added = windows.added(str(path), first.inode, first.end_bytes)
    assert added is not None
    assert (added.lines, added.partial) == (["two", "three"], "")
    path.write_text("new\n")
    assert windows.added(str(path), first.inode, added.end_bytes) is None

"""Records as tables, tsv, csv, json and jsonl: the exact text."""

from __future__ import annotations

import datetime
import io
import json
import pathlib
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import output
from orchestrator.rows import row_values

AT = datetime.datetime(2026, 11, 21, 8, 30, 0, 250000, tzinfo=datetime.UTC)
COLUMNS = ("job_id", "name", "state", "value", "at")
ROWS = [
    {
        "job_id": "123_4",
        "name": "a\tb\nc",
        "state": "RUNNING",
        "value": float("nan"),
        "at": AT,
        "labels": ("x=1", "y=2"),
        "path": pathlib.Path("/runs"),
        "variables": {"A": 1},
    },
    {"job_id": None, "name": '=1+1,"x"', "state": "FAILED", "value": float("-inf"), "at": None},
]


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def printed(capsys: pytest.CaptureFixture[str], format_: str) -> str:
    output.print_rows("things", ROWS, COLUMNS, format_)
    return capsys.readouterr().out


def test_tsv(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "tsv") == (
        "job_id\tname\tstate\tvalue\tat\n"
        "123_4\ta b c\tRUNNING\tnan\t2026-11-21T08:30:00+00:00\n"
        '\t=1+1,"x"\tFAILED\t-inf\t\n'
    )


def test_csv_starts_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "csv") == (
        "job_id,name,state,value,at\n"
        '123_4,"a\tb\nc",RUNNING,nan,2026-11-21T08:30:00+00:00\n'
        ',"\'=1+1,""x""",FAILED,-inf,\n'
    )
    output.print_rows("x", [{"v": v} for v in ("-1.5", "-x", "+1", "@7", "@SUM(A1)")], ["v"], "csv")
    assert capsys.readouterr().out == "v\n-1.5\n'-x\n+1\n@7\n'@SUM(A1)\n"


def test_json_has_one_envelope_and_jsonl_none(capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(printed(capsys, "json"))
    assert list(whole) == ["schema", "kind", "items"]
    assert (whole["schema"], whole["kind"]) == ("orchestrator/v1", "things")
    assert whole["items"][0] == {
        "job_id": "123_4",
        "name": "a\tb\nc",
        "state": "RUNNING",
        "value": "NaN",
        "at": "2026-11-21T08:30:00.250000+00:00",
        "labels": ["x=1", "y=2"],
        "path": "/runs",
        "variables": {"A": 1},
    }
    assert whole["items"][1]["value"] == "-Infinity"
    lines = printed(capsys, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == whole["items"]


def test_a_table_in_a_pipe_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"job_id": "1", "name": "n" * 120, "state": "PENDING", "value": "", "at": "now"}]
    output.print_rows("things", rows, COLUMNS, "table")
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["JOB_ID", "NAME", "STATE", "VALUE", "AT"]
    assert line == f"1       {'n' * 120}  PENDING         now"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(
    st.lists(st.text("abc日🚀[]", max_size=40), min_size=2, max_size=2),
    st.integers(min_value=10, max_value=100),
)
def test_a_narrow_terminal_cuts_nothing(names: list[str], width: int) -> None:
    rows = [{"job_id": f"{n}234567", "name": names[n], "state": "RUNNING"} for n in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        terminal = Terminal()
        patch.setattr(sys, "stdout", terminal)
        output.print_rows("things", rows, ("job_id", "name", "state"), "table")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    for whole in ("0234567", "1234567", "RUNNING"):
        assert whole in plain
    letters = [letter for letter in plain if letter in "abc日🚀[]"]
    assert sorted(letters) == sorted("".join(names))


@pytest.mark.parametrize(
    ("format_", "terminal", "environ", "is_coloured"),
    [
        ("table", True, {"TERM": "xterm-256color"}, True),
        # Empty counts as not set (no-color.org).
        ("table", True, {"TERM": "xterm-256color", "NO_COLOR": ""}, True),
        ("table", True, {"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ("table", True, {"TERM": "xterm-256color", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("table", True, {"TERM": "dumb"}, False),
        ("table", True, {"TERM": "dumb", "FORCE_COLOR": "1"}, False),
        ("table", False, {"TERM": "xterm-256color"}, False),
        ("table", False, {"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False),
        *(
            (format_, True, {"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False)
            for format_ in ("tsv", "csv", "json", "jsonl")
        ),
    ],
)
def test_colours(
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    terminal: bool,
    environ: dict[str, str],
    is_coloured: bool,
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stdout = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    # Both bold and of a colour.
    output.print_rows("jobs", [{"job_id": "1", "state": "LOST"}], ("job_id", "state"), format_)
    assert "LOST" in stdout.getvalue()
    assert ("\x1b" in stdout.getvalue()) == is_coloured


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "00:00:00"),
        (59.9, "00:00:59"),
        (3661, "01:01:01"),
        (93784, "1-02:03:04"),
    ],
)
def test_elapsed_reads_as_slurm_prints_it(seconds: float | None, text: str) -> None:
    assert row_values.elapsed(seconds) == text


def test_the_format_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output.default_format() == "tsv"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert output.default_format() == "table"

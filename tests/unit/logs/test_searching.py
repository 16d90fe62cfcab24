"""Lines that match an expression, as with grep, in any bytes."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.logs import following, searching, tailing
from orchestrator.text import expressions
from tests import builders

LOG = b"one\nloss 0.5\n\nloss nan\r\nfive\n10%\r20% loss\r30%\nseven loss"


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "7.out"


def search(log: pathlib.Path, expression: str, **how: object) -> list[tuple[int, bytes]]:
    compiled = searching.compile_expression(
        expression, ignore_case=bool(how.pop("ignore_case", False))
    )
    return [(hit.number, hit.text) for hit in searching.search(str(log), compiled, **how)]  # type: ignore[arg-type]


def test_lines_and_their_numbers(log: pathlib.Path) -> None:
    log.write_bytes(LOG)
    assert search(log, "^loss") == [(2, b"loss 0.5"), (4, b"loss nan")]
    assert search(log, "LOSS", ignore_case=True)[2:] == [(6, b"20% loss"), (7, b"seven loss")]
    assert search(log, r"[^x]loss$") == [(7, b"seven loss")]
    assert search(log, "^$") == [(3, b"")]
    # No line is behind the last line end, and none spans two lines.
    assert len(search(log, "")) == 7
    assert search(log, r"0.5\s+loss") == []
    with pytest.raises(expressions.ExpressionError, match="unterminated character set"):
        searching.compile_expression("[a")


def test_context_is_that_of_grep(log: pathlib.Path) -> None:
    log.write_text("".join(f"{number}\n" for number in range(1, 21)))
    compiled = searching.compile_expression("^(5|7|15)$")
    hits = list(searching.search(str(log), compiled, around=2))
    assert [hit.number for hit in hits] == [3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17]
    assert [hit.number for hit in hits if hit.fits] == [5, 7, 15]
    assert [hit.number for hit in hits if hit.gap] == [13]


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    data=st.lists(st.sampled_from([b"a", b"b", b"ab", b"\n", b"\r", b"\xff", b"c"])).map(b"".join),
    block=st.integers(1, 9),
    around=st.integers(0, 2),
    expression=st.sampled_from(["a", "^b", "b$", "a.*b", "[^a]b", r"\bab", "^$", "(?=a)a", "c|^a"]),
)
def test_block_size_does_not_change_the_result(
    log: pathlib.Path, data: bytes, block: int, around: int, expression: str
) -> None:
    log.write_bytes(data)
    compiled = re.compile(expression.encode())
    lines = data.split(b"\n")[: -1 if data.endswith(b"\n") or not data else None]
    # A line longer than a block would be searched in parts; there is none here.
    size = max([block, *(len(line) + 1 for line in lines)])
    fitting = [number for number, line in enumerate(lines, 1) if compiled.search(line)]
    near = {n + d for n in fitting for d in range(-around, around + 1)} & {
        *range(1, len(lines) + 1)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_BLOCK_BYTES", size)
        hits = list(
            searching.search(str(log), searching.compile_expression(expression), around=around)
        )
    assert [hit.number for hit in hits if hit.fits] == fitting
    assert [hit.number for hit in hits] == sorted(near)
    ends = [0, *(index + 1 for index, byte in enumerate(data) if byte == 10)]
    assert all(hit.offset_bytes == ends[hit.number - 1] for hit in hits)


def test_the_lines_of_an_attempt(log: pathlib.Path) -> None:
    banner = "=== orchestrator demo job 7 task 0 attempt {} on n1 at 2026-11-21T10:00:00Z ===\n"
    log.write_text("x\n" + banner.format(0) + "a\n" + banner.format(1) + "b\n" + banner.format(0))
    job = builders.make_job()
    first, second = (searching.attempt_span(str(log), job, attempt) for attempt in (0, 1))
    assert first is not None and second is not None
    assert b"".join(tailing.tail(str(log), None, *first[:2])) == banner.format(0).encode() + b"a\n"
    assert b"".join(tailing.tail(str(log), 1, *first[:2])) == b"a\n"
    assert second.end_bytes is None and second.before_lines == 3
    assert search(log, "^b", span=second) == [(5, b"b")]
    assert searching.attempt_span(str(log), job, 2) is None


def test_a_hole_of_a_terabyte(log: pathlib.Path) -> None:
    with log.open("wb") as file:
        file.write(b"loss 1\nhalf")
        file.seek(1 << 40)
        file.write(b"\nloss 2\n")
    assert search(log, "^loss") == [(1, b"loss 1"), (3, b"loss 2")]
    assert searching.attempt_span(str(log), builders.make_job(), 0) is None


def test_several_logs_are_followed_in_whole_lines(tmp_path: pathlib.Path) -> None:
    one, two = tmp_path / "1.out", tmp_path / "2.out"
    one.write_text("a\nb\nhalf")
    looks = iter([True, True, False])

    def wait(seconds: float) -> None:
        if two.exists():
            two.write_text("new")
        else:
            two.write_text("first\n")
        with one.open("a") as file:
            file.write(" whole\n")

    def look() -> tuple[bool, dict[int, str]]:
        return next(looks), {1: str(one), 2: str(two)}

    seen = list(following.follow_all(look, wait=wait, lines=2))
    assert seen == [
        (1, [b"b"]),
        (1, [b"half whole"]),
        (2, [b"first"]),
        (1, [b" whole"]),
        # The file is shorter than before: it was truncated.
        (2, [b"new"]),
    ]


def test_a_log_that_appears_later_is_shown_from_its_beginning(tmp_path: pathlib.Path) -> None:
    one, two, three = (tmp_path / f"{number}.out" for number in (1, 2, 3))
    one.write_text("a\nb\n")
    paths = {1: str(one), 2: str(two)}
    looks = iter([True, False])

    def wait(seconds: float) -> None:
        for path in (two, three):
            path.write_text("a\nb\n")
        paths[3] = str(three)

    def look() -> tuple[bool, dict[int, str]]:
        return next(looks), paths

    seen = list(following.follow_all(look, wait=wait, lines=1))
    assert seen == [(1, [b"b"]), (2, [b"a", b"b"]), (3, [b"a", b"b"])]

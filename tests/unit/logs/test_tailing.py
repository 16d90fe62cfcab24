"""The end of a log, and following it."""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

import pytest

from orchestrator import errors
from orchestrator.logs import following, tailing


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "4711.out"


def shown(blocks: Iterable[bytes]) -> bytes:
    return b"".join(blocks)


def test_tail(log: pathlib.Path):
    text = b"one\ntwo\r\n\nbar 10%\rbar 20%\nfo\xffur"
    log.write_bytes(text)
    assert shown(tailing.tail(str(log), 2)) == b"bar 10%\rbar 20%\nfo\xffur"
    assert list(tailing.tail(str(log), 0)) == []
    assert shown(tailing.tail(str(log))) == text
    assert shown(tailing.tail(str(log), None)) == text


@pytest.mark.parametrize("count", [1, 99, 4096, 20_000])
def test_tail_of_a_log_of_many_blocks(log: pathlib.Path, count: int):
    # 3 bytes a character, so that some stand across the blocks' edges.
    text = [f"{number:05} €€€\n" for number in range(20_000)]
    log.write_text("".join(text))
    result = "".join(text[-count:])
    assert shown(tailing.tail(str(log), count)) == result.encode()
    assert "".join(tailing.for_terminal(tailing.tail(str(log), count), hold=True)) == result


def test_tail_reads_only_the_end_of_a_huge_log(log: pathlib.Path):
    with log.open("wb") as file:
        file.write(b"first\n")
        file.truncate(2**40)
    begun = next(iter(tailing.tail(str(log), 1)))
    assert begun == bytes(64 * 1024)
    with log.open("rb") as file:
        offset = tailing.tail_offset(file.fileno(), 2**40, 1)
    assert 2**40 - offset == 64 * 2**20 + 16 * 1024


def test_a_log_comes_in_few_pieces(log: pathlib.Path):
    log.write_text("x" * 300_000 + "\nend\n" + "y\n" * 100_000)
    assert len(list(tailing.tail(str(log), None))) == 8
    pieces = list(tailing.for_terminal(tailing.tail(str(log), None), hold=True))
    assert "".join(pieces) == log.read_text()
    assert len(pieces) < 10
    assert max(map(len, pieces)) < 200_000


def test_text_is_safe_for_a_terminal():
    blocks = [b"plain \x1b[3", b"1mred\x1b[0m \xe2\x82", b"\xac \xff \x07\n\x1b]0;title\x07last"]
    assert "".join(tailing.for_terminal(blocks, hold=True)) == "plain red € \ufffd \\x07\nlast"
    # Nothing waits here: what was cut is shown as text.
    assert list(tailing.for_terminal([b"10%", b"\r20%\x1b[", b"0m\n"], hold=False)) == [
        "10%",
        "\r20%\\x1b[",
        "0m\n",
    ]


def test_no_log_is_an_error(log: pathlib.Path):
    with pytest.raises(errors.NotFoundError) as caught:
        list(tailing.tail(str(log)))
    assert str(caught.value) == f"no log yet: {log} appears when the job starts"
    os.mkfifo(log)
    with pytest.raises(errors.OrchestratorError) as other:
        list(tailing.tail(str(log)))
    assert str(other.value) == f"cannot read {log}: not a regular file but a FIFO"


class Script:
    """Does one thing at each wait; the job is done when nothing is left to do."""

    def __init__(self, *things: Callable[[], object]) -> None:
        self.things = list(things)
        self.waited: list[float] = []

    def done(self) -> bool:
        return not self.things

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.things.pop(0)()

    def follow(self, log: pathlib.Path, **options: int | None) -> Iterator[bytes]:
        return following.follow(str(log), done=self.done, wait=self.wait, **options)


def append(log: pathlib.Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_follow_shows_the_last_lines_and_what_is_added(log: pathlib.Path):
    log.write_text("one\ntwo\n")
    script = Script(lambda: append(log, b"thr"), lambda: append(log, b"ee \xe2\x82"))
    pieces = script.follow(log, lines=1)
    assert list(pieces) == [b"two\n", b"thr", b"ee \xe2\x82"]
    assert script.waited == [1.0, 1.0]


def test_follow_joins_a_character_that_came_in_two_writes(log: pathlib.Path):
    log.write_bytes(b"5 \xe2\x82")
    blocks = Script(lambda: append(log, b"\xac\n")).follow(log)
    assert list(tailing.for_terminal(blocks, hold=False)) == ["5 ", "€\n"]


def test_follow_waits_for_a_late_log_and_shows_all_of_it(log: pathlib.Path):
    text = "".join(f"{number}\n" for number in range(50))
    script = Script(lambda: None, lambda: log.write_text(text))
    assert shown(script.follow(log, lines=10)) == text.encode()


def test_follow_survives_truncation_replacement_and_absence(log: pathlib.Path):
    log.write_text("one\ntwo\n")
    other = log.with_name("other")
    other.write_text("a new file that is longer\n")
    script = Script(
        lambda: log.write_text("cut\n"),
        log.unlink,
        lambda: other.rename(log),
    )
    assert list(script.follow(log)) == [b"one\ntwo\n", b"cut\n", b"a new file that is longer\n"]


def test_follow_reads_what_was_written_right_before_the_end(log: pathlib.Path):
    log.write_text("one\n")

    def done() -> bool:
        append(log, b"last words\n")
        return True

    pieces = following.follow(str(log), done=done, wait=lambda seconds: None)
    assert list(pieces) == [b"one\nlast words\n"]


def test_follow_of_a_job_that_ended_without_a_log_ends(log: pathlib.Path):
    with pytest.raises(errors.NotFoundError):
        list(Script().follow(log))

"""The end of a log, and what is added to it."""

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from orchestrator import errors, logs


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "4711.out"


def test_tail(log: pathlib.Path):
    log.write_bytes(b"one\ntwo\r\n\nbar 10%\rbar 20%\nfo\xffur")
    assert list(logs.tail(str(log), 2)) == ["bar 10%\rbar 20%\n", "fo\ufffdur"]
    assert list(logs.tail(str(log), 0)) == []
    everything = ["one\n", "two\r\n", "\n", "bar 10%\rbar 20%\n", "fo\ufffdur"]
    assert list(logs.tail(str(log))) == everything
    assert list(logs.tail(str(log), None)) == everything


@pytest.mark.parametrize("wanted", [1, 99, 4096, 20_000])
def test_tail_of_a_log_of_many_blocks(log: pathlib.Path, wanted: int):
    # 3 bytes a character, so that some stand across the blocks' edges.
    text = [f"{number:05} €€€\n" for number in range(20_000)]
    log.write_text("".join(text))
    assert list(logs.tail(str(log), wanted)) == text[-wanted:]


def test_a_line_longer_than_a_block_comes_in_pieces(log: pathlib.Path):
    log.write_text("x" * 300_000 + "\nend\n")
    pieces = list(logs.tail(str(log), 2))
    assert "".join(pieces) == log.read_text()
    assert max(map(len, pieces)) < 200_000


def test_no_log_is_an_error(log: pathlib.Path):
    with pytest.raises(errors.NotFoundError) as caught:
        list(logs.tail(str(log)))
    assert str(caught.value) == f"no log yet: {log} appears when the job starts"
    os.mkfifo(log)
    with pytest.raises(errors.OrchestratorError) as other:
        list(logs.tail(str(log)))
    assert str(other.value) == f"cannot read {log}: not a regular file"


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

    def follow(self, log: pathlib.Path, **options: int | None) -> Iterator[str]:
        return logs.follow(str(log), done=self.done, wait=self.wait, **options)


def append(log: pathlib.Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_follow_shows_the_last_lines_and_what_is_added(log: pathlib.Path):
    log.write_text("one\ntwo\n")
    script = Script(lambda: append(log, b"thr"), lambda: append(log, b"ee \xe2\x82"))
    pieces = script.follow(log, lines=1)
    assert list(pieces) == ["two\n", "thr", "ee ", "\ufffd"]
    assert script.waited == [1.0, 1.0]


def test_follow_joins_a_character_that_came_in_two_writes(log: pathlib.Path):
    log.write_bytes(b"5 \xe2\x82")
    assert "".join(Script(lambda: append(log, b"\xac\n")).follow(log)) == "5 €\n"


def test_follow_waits_for_a_late_log_and_shows_all_of_it(log: pathlib.Path):
    text = "".join(f"{number}\n" for number in range(50))
    script = Script(lambda: None, lambda: log.write_text(text))
    assert "".join(script.follow(log, lines=10)) == text


def test_follow_survives_truncation_replacement_and_absence(log: pathlib.Path):
    log.write_text("one\ntwo\n")
    other = log.with_name("other")
    other.write_text("a new file that is longer\n")
    script = Script(
        lambda: log.write_text("cut\n"),
        log.unlink,
        lambda: other.rename(log),
    )
    assert list(script.follow(log)) == ["one\n", "two\n", "cut\n", "a new file that is longer\n"]


def test_follow_reads_what_was_written_right_before_the_end(log: pathlib.Path):
    log.write_text("one\n")

    def done() -> bool:
        append(log, b"last words\n")
        return True

    pieces = logs.follow(str(log), done=done, wait=lambda seconds: None)
    assert list(pieces) == ["one\n", "last words\n"]


def test_follow_of_a_job_that_ended_without_a_log_ends(log: pathlib.Path):
    assert list(Script().follow(log)) == []

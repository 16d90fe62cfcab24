"""Splitting bytes into lines."""

import pytest

from orchestrator.logs import lines


def texts(data: bytes) -> list[tuple[int, bytes]]:
    return lines.split(data).segments


def test_lines_have_numbers():
    assert texts(b"one\r\n\ntwo\nthr") == [(1, b"one"), (3, b"two")]


def test_the_states_of_a_progress_bar_share_a_line_number():
    assert texts(b"10%\r20%\r\nnext\n") == [(1, b"10%"), (1, b"20%"), (2, b"next")]


def test_text_around_a_hole_is_not_joined():
    data = b"\0\0\0Epoch Throughput: 36" + b"\0" * 3 + b"577.0 images/second\n"
    assert texts(data) == [(1, b"Epoch Throughput: 36"), (1, b"577.0 images/second")]


def test_unfinished_line_waits_or_is_flushed():
    waiting = lines.split(b"one\ntw")
    assert waiting.consumed_bytes == 4
    assert not waiting.skipping
    flushed = lines.split(b"one\ntw", flush=True)
    assert flushed.segments[-1] == (2, b"tw")
    # The rest of a line that was already returned is skipped.
    rest = lines.split(b"o\nthree\n", line=flushed.line, skipping=flushed.skipping)
    assert rest.segments == [(3, b"three")]


def test_the_rest_of_a_long_line_is_skipped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "LINE_CAP_BYTES", 4)
    first = lines.split(b"x" * 10)
    assert first.segments == [(1, b"xxxx")]
    assert (first.consumed_bytes, first.skipping) == (10, True)
    second = lines.split(b"xxx\ny\n", skipping=True)
    assert second.segments == [(2, b"y")]


def test_a_line_of_the_maximum_length(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "LINE_CAP_BYTES", 4)
    assert lines.split(b"xxxx\n").segments == [(1, b"xxxx")]
    assert lines.split(b"xxxx").consumed_bytes == 0


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mLoss: 0.5\x1b[0m\x1b[K", "Loss: 0.5"),
        (b"\x1b]0;a title\x07Loss: 0.5", "Loss: 0.5"),
        (b"\x1b]8;;http://a\x1b\\Loss\x1b]8;;\x1b\\: 0.5", "Loss: 0.5"),
        (b"\x1b(BLoss: 0.5\x1b7\x1b8", "Loss: 0.5"),
        (b"Loss\xff: 0.5 \xe2\x82", "Loss\ufffd: 0.5 \ufffd"),
    ],
)
def test_clean(raw: bytes, text: str):
    assert lines.clean(raw) == text


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("tab\tand\r\n", "tab\tand\r\n"),
        ("\x1b[2J\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;Y2F0\x07clip", "clip"),
        ("bell\x07 del\x7f esc\x1b", r"bell\x07 del\x7f esc\x1b"),
        ("\x9b31mC1 \u202eturned", "\\x9b31mC1 \\u202eturned"),
        ("hole\0\0", "hole"),
        ("\x1b[\x1b[31m2J", r"\x1b[2J"),
        ("\x1b]5\x1b[m2;c;eA==\x07", r"\x1b]52;c;eA==\x07"),
    ],
)
def test_safe(text: str, harmless: str):
    assert lines.safe(text) == harmless

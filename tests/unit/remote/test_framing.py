"""Messages on a stream, in whatever pieces it arrives."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.remote import framing
from orchestrator.remote.framing import Message

KEYS = st.dictionaries(
    st.text(max_size=8).filter(lambda key: key != "bytes"),
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.text()),
    max_size=4,
)
MESSAGES = st.builds(Message, KEYS, st.binary(max_size=300))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(at)]


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(min_value=0), max_size=8))
def test_messages_arrive_whatever_the_pieces_are(sent: list[Message], cuts: list[int]) -> None:
    decoder = framing.Decoder()
    data = b"".join(message.encoded() for message in sent)
    received = [message for piece in pieces(data, cuts) for message in decoder.feed(piece)]
    assert [message.payload for message in received] == [message.payload for message in sent]
    for got, expected in zip(received, sent, strict=True):
        assert {key: got.keys[key] for key in got.keys if key != "bytes"} == expected.keys
    assert decoder.is_between_messages


@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_a_framing_error(data: bytes) -> None:
    decoder = framing.Decoder()
    try:
        for message in decoder.feed(data):
            assert isinstance(message.keys, dict)
    except framing.FramingError:
        pass


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b"[1]\n",
        b'{"bytes": -1}\n',
        b'{"bytes": true}\n',
        b'{"bytes": 99999999999}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(framing.FramingError):
        list(framing.Decoder().feed(line))


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(framing.FramingError, match="more than"):
        list(framing.Decoder().feed(b" " * (framing.MAX_LINE_BYTES + 1)))


def test_words_that_are_not_utf8_arrive() -> None:
    words = [b"caf\xe9".decode(errors="surrogateescape"), "\N{SNOWMAN}"]
    (message,) = framing.Decoder().feed(Message({"words": words}).encoded())
    assert message.keys["words"] == words


@given(st.binary(max_size=200), st.binary(max_size=50), st.lists(st.integers(0), max_size=5))
def test_the_marker_is_found_after_any_noise(noise: bytes, rest: bytes, cuts: list[int]) -> None:
    if framing.MARKER in noise:
        return
    search = framing.MarkerSearch()
    data = noise + b"\n" + framing.MARKER + rest
    found = None
    after = b""
    for piece in pieces(data, cuts):
        if found is None:
            found = search.feed(piece)
        else:
            after += piece
    assert found is not None
    assert found + after == rest
    assert bytes(search.noise) == noise + b"\n"


def test_the_marker_counts_only_at_the_beginning_of_a_line() -> None:
    search = framing.MarkerSearch()
    assert search.feed(b"see " + framing.MARKER + b"\n") is None
    assert search.feed(framing.MARKER + b"{}") == b"{}"


def test_endless_noise_is_refused() -> None:
    with pytest.raises(framing.FramingError, match="no agent"):
        framing.MarkerSearch().feed(b"x" * (framing.MAX_NOISE_BYTES + 1))


def test_a_number_is_no_truth_value() -> None:
    message = Message(json.loads('{"type": "ack", "offset": true}'))
    with pytest.raises(framing.FramingError, match="ack: offset must be an integer >= 0"):
        message.number("offset")

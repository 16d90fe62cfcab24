"""The event files of TensorBoard, read by another implementation of the format."""

from __future__ import annotations

import math
import struct

from orchestrator.trackers import event_files
from tests.unit.trackers import event_reader


def test_every_value_is_read_back() -> None:
    assert event_reader.crc32c(b"123456789") == 0xE3069283  # RFC 3720
    numbers = [0.0, -1.5, 2.0**-149, 3.4028234663852886e38, 1e39, -1e300, math.inf, 0.1]
    points = [(7 ** (n * 2) - 1, 1.7e9 + n / 8, number) for n, number in enumerate(numbers)]
    points.append((-3, 0.0, 2.5))
    content = event_files.beginning(1.5) + event_files.encoder("väl/loss")(points)
    assert [*event_reader.messages(next(event_reader.records(content)))][1] == (3, b"brain.Event:2")
    rounded = [*numbers[:4], math.inf, -math.inf, math.inf, *struct.unpack("f", b"\xcd\xcc\xcc=")]
    assert event_reader.scalars(content) == {
        "väl/loss": [
            (step, time, value)
            for (step, time, _), value in zip(points, [*rounded, 2.5], strict=True)
        ]
    }
    nan = event_files.encoder("x")([(1, 2.0, math.nan)])
    assert math.isnan(event_reader.scalars(nan)["x"][0][2])


def test_a_restart_makes_readers_forget_later_steps() -> None:
    encode = event_files.encoder("loss")
    content = encode((n, 0.0, 1.0) for n in range(-2, 3)) + event_files.restart(-1, 0.0)
    assert event_reader.scalars(content) == {"loss": [(-2, 0.0, 1.0)]}

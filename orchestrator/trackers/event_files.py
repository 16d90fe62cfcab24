"""The event files of TensorBoard: records with checksums around protocol buffers.

Written by hand because TensorBoard would be a dependency of 60 MB. The format of the records is in
tensorflow/core/lib/io/record_writer.cc, the messages are in tensorboard/compat/proto, event.proto
and summary.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable

_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF
_LARGEST_FLOAT = 3.4028234663852886e38


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def _crc32c(content: bytes, crc: int = _MASK) -> int:
    """Continue a CRC-32C, without its final inversion."""
    table = _TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _masked(crc: int) -> bytes:
    crc ^= _MASK
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK)


def _varint(value: int) -> bytes:
    # A negative int64 has ten bytes.
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _record(event: bytes, crc: int) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _masked(_crc32c(length)) + event + _masked(crc)


def beginning(time: float) -> bytes:
    """Return the first record of a file."""
    event = b"\x09" + struct.pack("<d", time) + _field(3, b"brain.Event:2")
    return _record(event, _crc32c(event))


def restart(step: int, time: float) -> bytes:
    """Return a record after which readers forget all values from this step on."""
    # SessionLog.status = START
    event = b"\x09" + struct.pack("<d", time) + b"\x10" + _varint(step) + _field(7, b"\x08\x01")
    return _record(event, _crc32c(event))


def encoder(name: str) -> Callable[[Iterable[tuple[int, float, float]]], bytes]:
    """Return a function that encodes values of this name: (step, seconds since 1970, value)."""
    tag = _field(1, name.encode())
    # The fields of an event may have any order. The constant ones come first, so that most of the
    # checksum is computed once: Event.summary, Summary.value, its tag and simple_value.
    value_size = len(tag) + 5
    summary_size = 1 + len(_varint(value_size)) + value_size
    head = b"\x2a" + _varint(summary_size) + b"\x0a" + _varint(value_size) + tag + b"\x15"
    head_crc = _crc32c(head)
    lengths: dict[int, bytes] = {}
    pack = struct.Struct("<f").pack, struct.Struct("<d").pack

    def encode(points: Iterable[tuple[int, float, float]]) -> bytes:
        parts: list[bytes] = []
        for step, time, value in points:
            tail = pack[0](_as_float(value)) + b"\x10" + _varint(step) + b"\x09" + pack[1](time)
            size = len(head) + len(tail)
            if size not in lengths:
                length = struct.pack("<Q", size)
                lengths[size] = length + _masked(_crc32c(length))
            parts += (lengths[size], head, tail, _masked(_crc32c(tail, head_crc)))
        return b"".join(parts)

    return encode


def _as_float(value: float) -> float:
    if math.isfinite(value) and abs(value) > _LARGEST_FLOAT:
        return math.copysign(math.inf, value)
    return value

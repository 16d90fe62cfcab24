"""Reads event files as TensorBoard does: checksums, restarts, scalars by name."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def scalars(content: bytes) -> dict[str, list[tuple[int, float, float]]]:
    """Return (step, time, value) by name, without what a restart made forgotten."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for event in records(content):
        fields = dict(messages(event))
        (time,) = struct.unpack("<d", fields[1])
        step = _signed(fields.get(2, 0))
        if 7 in fields:
            assert dict(messages(fields[7])) == {1: 1}
            for name, points in found.items():
                found[name] = [point for point in points if point[0] < step]
        if 5 in fields:
            value = dict(messages(dict(messages(fields[5]))[1]))
            (number,) = struct.unpack("<f", value[2])
            found.setdefault(value[1].decode(), []).append((step, time, number))
    return found


def records(content: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(content):
        head = content[place : place + 8]
        (length,) = struct.unpack("<Q", head)
        body = content[place + 12 : place + 12 + length]
        assert content[place + 8 : place + 12] == _masked(crc32c(head))
        place += 12 + length + 4
        assert content[place - 4 : place] == _masked(crc32c(body))
        yield body


def crc32c(content: bytes) -> int:
    """Bit by bit, from the polynomial of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def messages(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = content[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while place < len(content):
        field, kind = divmod(varint(), 8)
        if kind == 0:
            yield field, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield field, content[place : place + size]
        place += size


def _masked(crc: int) -> bytes:
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number

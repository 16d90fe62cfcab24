"""Dumps of PyTorch's flight recorder: which rank did not take part in a collective. Pure.

A rank writes its last collectives as JSON or as a pickle. Other users may be able to write into a
run folder, and unpickling runs code, so only plain values are read, by an interpreter of our own.
"""

from __future__ import annotations

import dataclasses
import json
import pickletools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: A dump of 2000 collectives, each with a stack of 30 frames, has 0.7 million.
MAX_OPERATIONS = 2_000_000
#: Each byte of JSON may become 30 bytes of memory. JSON has no stacks.
_MAX_JSON_BYTES = 8 * 1024 * 1024
#: A pickle may refer to one long text from many places.
_MAX_NAME_CHARACTERS = 1000
_MAX_RANKS_CHARACTERS = 4_000_000
_MAX_NAMED = 8
_MAX_CHARACTERS = 60
#: Of the operations that are read, the number of bytes that follow: a number, or the length of a
#: longer argument.
_SIZES = {
    **{"BINGET": 1, "LONG_BINGET": 4, "BINPUT": 1, "LONG_BINPUT": 4, "PROTO": 1, "FRAME": 8},
    **{"BININT": 4, "BININT1": 1, "BININT2": 2, "BINFLOAT": 8},
    **{"LONG1": 1, "BINUNICODE": 4, "SHORT_BINUNICODE": 1},
}
_BINGET = ord("h")
_OPERATIONS = [("", 0)] * 256
for _operation in pickletools.opcodes:
    _OPERATIONS[ord(_operation.code)] = (_operation.name, _SIZES.get(_operation.name, 0))
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    #: of the process group: "default_pg"
    group: str
    #: in its group, from 1
    number: int
    #: "all_reduce"
    name: str
    is_completed: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dump:
    """The last collectives of a rank."""

    collectives: Sequence[Collective]
    #: those of the largest group
    ranks: frozenset[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    is_mismatch: bool
    #: the rank that the others wait for; None: several
    rank: int | None
    sentence: str


def parse(data: bytes) -> Dump:
    """Return a dump; raises ValueError for other data."""
    is_json = data[:1] == b"{"
    if is_json and len(data) > _MAX_JSON_BYTES:
        raise ValueError(f"more than {_MAX_JSON_BYTES} bytes of JSON")
    try:
        document = json.loads(data) if is_json else _plain_values(data)
        return Dump(collectives=[*_collectives(document)], ranks=_ranks(document))
    except (
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        struct.error,
    ) as error:
        raise ValueError("not a dump of the flight recorder") from error


def _plain_values(data: bytes) -> Any:
    """Return what a pickle of dicts, lists, tuples, texts and numbers contains."""
    stack: list[Any] = []
    #: What was below each mark.
    below: list[list[Any]] = []
    memo: dict[int, Any] = {}
    place, from_bytes = 0, int.from_bytes
    # The most frequent operations first: pickletools.genops takes three times as long.
    for _ in range(MAX_OPERATIONS):
        code, begin = data[place], place + 1
        if code == _BINGET:
            stack.append(memo[data[begin]])
            place += 2
            continue
        name, size = _OPERATIONS[code]
        place = begin + size
        number = data[begin] if size == 1 else from_bytes(data[begin:place], "little")
        if name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("BININT1", "BININT2"):
            stack.append(number)
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "APPENDS":
            items, stack = stack, below.pop()
            stack[-1].extend(items)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "LONG_BINGET":
            stack.append(memo[number])
        elif name == "BININT":
            stack.append(from_bytes(data[begin:place], "little", signed=True))
        elif name in ("SETITEMS", "SETITEM"):
            if name == "SETITEMS":
                items, stack = stack, below.pop()
            else:
                items = [stack.pop(-2), stack.pop()]
            # The hash of nested tuples takes time that is exponential in their depth.
            stack[-1].update(zip(map(_text, items[::2]), items[1::2], strict=True))
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "LONG1":
            stack.append(from_bytes(data[place : place + number], "little", signed=True))
            place += number
        elif name in ("BINUNICODE", "SHORT_BINUNICODE"):
            stack.append(data[place : place + number].decode())
            place += number
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[number] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name == "BINFLOAT":
            stack += struct.unpack(">d", data[begin:place])
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name == "TUPLE":
            items, stack = stack, below.pop()
            stack.append(tuple(items))
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"{name} is no operation of a plain value")
    raise ValueError(f"more than {MAX_OPERATIONS} operations")


def _collectives(document: Any) -> Iterator[Collective]:
    for entry in document["entries"]:
        if entry.get("is_p2p"):
            continue
        name, group = _name(entry["profiling_name"]), entry["process_group"]
        yield Collective(
            group=_name(group[1] or group[0])[:_MAX_CHARACTERS],
            number=int(entry["collective_seq_id"]),
            name=(name.partition(":")[2] or name)[:_MAX_CHARACTERS],
            is_completed=bool(entry.get("retired")) or entry.get("state") == "completed",
        )


def _ranks(document: Any) -> frozenset[int]:
    texts = [_text(group.get("ranks", "")) for group in document.get("pg_config", {}).values()]
    if sum(map(len, texts)) > _MAX_RANKS_CHARACTERS:
        raise ValueError("too many ranks")
    ranks = (frozenset(map(int, re.findall(r"[0-9]{1,9}", text))) for text in texts)
    return max(ranks, key=len, default=frozenset())


def _text(value: Any) -> str:
    """Return a text; TypeError for another value, which may be too large to convert."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _name(value: Any) -> str:
    """Return a name, which messages and the database can contain."""
    if len(text := _text(value)) > _MAX_NAME_CHARACTERS or not text.isprintable():
        raise ValueError("not a name")
    return text


def judge(dumps: Mapping[int, Dump]) -> Result | None:
    """Return which rank the others wait for, or that ranks called different collectives."""
    groups: dict[str, dict[int, dict[int, Collective]]] = {}
    for rank, dump in sorted(dumps.items()):
        for call in dump.collectives:
            groups.setdefault(call.group, {}).setdefault(rank, {})[call.number] = call
    for group, by_rank in groups.items():
        last = {rank: max(calls) for rank, calls in by_rank.items()}
        number = min(last.values()) + (min(last.values()) < max(last.values()))
        names = {rank: calls[number].name for rank, calls in by_rank.items() if number in calls}
        what = f"number {number} of group {group}"
        if len(set(names.values())) > 1:
            calls = ", ".join(f"rank {rank} {name}" for rank, name in _first(names.items()))
            sentence = f"the ranks called different collectives as {what}: {calls}"
            return Result(is_mismatch=True, rank=None, sentence=sentence)
        if not names or any(
            calls[number].is_completed for calls in by_rank.values() if number in calls
        ):
            continue
        name = next(iter(names.values()))
        absent = [rank for rank in by_rank if last[rank] < number]
        waiting = f"{_named([*names])} waited there"
        sentence = f"{_named(absent)} did not call {name} {what}; {waiting}"
        if not absent and len(by_rank) == len(dumps):
            # A rank that has ended writes no dump.
            ranks = frozenset[int]().union(*(dump.ranks for dump in dumps.values()))
            absent = sorted(ranks - dumps.keys())
            sentence = f"{_named(absent)} left no dump at {name} {what}; {waiting}"
        if absent:
            slowest = absent[0] if len(absent) == 1 else None
            return Result(is_mismatch=False, rank=slowest, sentence=sentence)
    return None


def _first(items: Any) -> list[Any]:
    return [*items][:_MAX_NAMED]


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _MAX_NAMED} more" if len(ranks) > _MAX_NAMED else ""
    numbers = ", ".join(map(str, _first(ranks)))
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}{more}"

"""Dumps of PyTorch's flight recorder, written by three ranks of which rank 1 skips a call."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from orchestrator.diagnosis import flight_recorder

#: torch 2.15, gloo: _dump_fr_trace(), and of rank 1 also _dump_fr_trace_json().
FOLDER = Path(__file__).parents[2] / "data/flight"
DUMPS = {rank: (FOLDER / f"flight.0.0.{rank}").read_bytes() for rank in range(3)}


def test_the_rank_that_did_not_call() -> None:
    dumps = {rank: flight_recorder.parse(data) for rank, data in DUMPS.items()}
    assert flight_recorder.parse((FOLDER / "rank1.json").read_bytes()) == dumps[1]
    call = "all_reduce number 3 of group default_pg; ranks 0, 2 waited there"
    assert flight_recorder.judge(dumps) == flight_recorder.Result(
        is_mismatch=False, rank=1, sentence=f"rank 1 did not call {call}"
    )
    without = {0: dumps[0], 2: dumps[2]}
    assert flight_recorder.judge(without) == flight_recorder.Result(
        is_mismatch=False, rank=1, sentence=f"rank 1 left no dump at {call}"
    )
    assert flight_recorder.judge({}) is flight_recorder.judge({1: dumps[1]}) is None


def test_different_calls() -> None:
    first, _, last = flight_recorder.parse(DUMPS[0]).collectives
    other = dataclasses.replace(last, name="broadcast")
    dumps = {
        rank: flight_recorder.Dump(collectives=[first, call], ranks=frozenset({0, 1}))
        for rank, call in enumerate((last, other))
    }
    assert flight_recorder.judge(dumps) == flight_recorder.Result(
        is_mismatch=True,
        rank=None,
        sentence="the ranks called different collectives as number 3 of group default_pg: "
        "rank 0 all_reduce, rank 1 broadcast",
    )


def test_plain_values_are_those_of_pickle() -> None:
    shared = ["x" * 300, {"a": []}]
    value = {
        "numbers": [0, 255, 256, 65536, -1, -(2**31), 2**31, 2**40, 1.5, None, True, False],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))],
        "texts": ["", "é" * 200, *shared, *shared],
        "one": [1],
        "empty": {},
        "pair": {"b": {"c": shared}},
    }
    values = [pickle.dumps(value, protocol) for protocol in (2, 3, 4, 5)]
    for data in (*values, *DUMPS.values()):
        assert flight_recorder._plain_values(data) == pickle.loads(data)


class Opens:
    """What a pickle of another user could do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def nested(start: Any) -> Any:
    """A value that has more than 2 ** 90 parts if it is converted or hashed."""
    value = start
    for _ in range(90):
        value = (value, value)
    return value


def entry(**fields: object) -> dict[str, list[dict[str, object]]]:
    good = {"profiling_name": "a", "process_group": ("0", "p"), "collective_seq_id": 1}
    return {"entries": [{**good, **fields}]}


def test_only_plain_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "opened"
    many = [{"ranks": "1 " * 2**22}]
    hostile: list[object] = [
        *(Opens(path), entry(process_group=Opens(path)), b"bytes", [], {"entries": [[]]}),
        *(entry(profiling_name=nested("x")), entry(process_group=nested("x"))),
        # Hashing it would take forever; pickle itself cannot write it as a key.
        *({"entries": [], "pg_config": {"": {"ranks": nested("x")}}}, entry(collective_seq_id="x")),
        # No database stores these.
        *(entry(profiling_name="x:\0"), entry(process_group=("0", "\ud800"))),
        # Reading a long text again from each place that refers to it would take hours.
        {"entries": [*entry(profiling_name="x" * 2**24)["entries"] * 2**16]},
        {
            "entries": [],
            "pg_config": dict(zip(map(str, range(2**12)), many * 2**12, strict=True)),
        },
    ]
    for value in hostile:
        with pytest.raises(ValueError):
            flight_recorder.parse(pickle.dumps(value, 2))
    key = pickle.dumps(nested(1), 2)[:-1]
    texts = [b"", b"x", b"}.", b"\x80\x02}" + key[2:] + b"K\x01s.", b"{" * 10**6, b"\x80\x02(."]
    texts.append(b'{"entries":[' + b"[]," * 2**22 + b"[]]}")
    texts += [json.dumps(entry(collective_seq_id=float("inf"))).encode(), DUMPS[0][:-1]]
    for text in texts:
        with pytest.raises(ValueError):
            flight_recorder.parse(text)
    assert not path.exists()


def test_damaged_dumps_raise_nothing_else() -> None:
    for place in range(0, len(DUMPS[0]), 3):
        damaged = bytearray(DUMPS[0])
        damaged[place] ^= 0x15
        try:
            flight_recorder.parse(bytes(damaged))
        except ValueError:
            continue

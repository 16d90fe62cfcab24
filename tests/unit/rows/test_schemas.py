"""JSON Schemas of TypedDicts."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from orchestrator.jobs import JobState
from orchestrator.rows import row_values
from orchestrator.rows.contract import kinds, schemas


class Inner(TypedDict, total=False):
    at: datetime.datetime


class Outer(TypedDict):
    number: Annotated[int | None, "In seconds."]
    value: float
    kind: Literal["a", "b"]
    state: JobState
    names: list[str]
    inner: Inner
    counts: Mapping[str, int]
    anything: Any
    absent: NotRequired[str]
    like: NotRequired[Annotated[bool, schemas.NamesLike("^p[0-9]+$")]]


class Derived(Outer):
    further: bool


SCHEMA = schemas.of_output("title", "v1", {"outer": Outer})
ROW: dict[str, Any] = {
    "number": None,
    "value": 1,
    "kind": "a",
    "state": "RUNNING",
    "names": ["x"],
    "inner": {},
    "counts": {"x": 1},
    "anything": [None],
}


def problems(**changes: Any) -> list[str]:
    row = {name: value for name, value in {**ROW, **changes}.items() if value is not ...}
    envelope = {"schema": "v1", "kind": "outer", "items": [row]}
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(envelope)
    return [error.message for error in errors]


def test_the_schema_of_a_row() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"] == "title"
    assert SCHEMA["$defs"]["Outer"]["properties"]["number"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "In seconds.",
    }
    assert SCHEMA["$defs"]["Outer"]["required"] == list(ROW)
    assert SCHEMA["$defs"]["Inner"]["required"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"number": 3, "absent": "text", "p5": True},
        {"value": "NaN"},
        {"inner": {"at": "2026-11-20T10:00:00+00:00"}},
    ],
)
def test_what_it_allows(changes: dict[str, Any]) -> None:
    assert problems(**changes) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"number": ...},
        {"number": "3"},
        {"number": True},
        {"value": "nan"},
        {"kind": "c"},
        {"state": "DONE"},
        {"names": [1]},
        {"inner": {"other": 1}},
        {"counts": {"x": "1"}},
        {"new_field": 1},
        {"p5": 5},
    ],
)
def test_what_it_refuses(changes: dict[str, Any]) -> None:
    assert len(problems(**changes)) == 1


def test_fields_of_the_base_come_first() -> None:
    assert schemas.field_names(Derived) == [*schemas.field_names(Outer), "further"]


def test_several_kinds_are_alternatives() -> None:
    schema = schemas.of_output("title", "v1", {"outer": Outer, "derived": Derived})
    kinds_of = [each["properties"]["kind"]["const"] for each in schema["oneOf"]]
    assert kinds_of == ["outer", "derived"]


def test_a_type_without_a_schema_is_an_error() -> None:
    class Wrong(TypedDict):
        value: bytes

    with pytest.raises(TypeError, match="bytes"):
        schemas.of_output("title", "v1", {"wrong": Wrong})


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_each_kind_has_a_valid_schema(kind: str) -> None:
    schema = schemas.of_output(kind, "v1", {kind: kinds.KINDS[kind]})
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_row_has_exactly_the_fields_of_its_type() -> None:
    class Record:
        at = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)

    class Both(Inner):
        more: int

    assert row_values.row_of(Both, Record(), more=1) == {"at": Record.at, "more": 1}
    assert row_values.row_of(Both, None, more=1) == {"at": None, "more": 1}
    with pytest.raises(TypeError, match="Both has no field unknown"):
        row_values.row_of(Both, Record(), unknown=1)

"""A spec converted to JSON and back is unchanged."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import errors, jobs, specs
from orchestrator.toml import schema

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of any type that a spec's field may have."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(_of, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_of(arguments[0]), max_size=3).map(tuple)
    if hint is not type(None) and dataclasses.is_dataclass(hint):
        return _record(hint)
    if hint in (str, jobs.PluginName):
        return TEXT
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is bool:
        return st.booleans()
    if hint is Any:
        return st.recursive(TEXT | st.booleans(), lambda inner: st.lists(inner, max_size=2))
    if hint is type(None):
        return st.none()
    assert issubclass(origin, Mapping)
    return st.dictionaries(TEXT, _of(arguments[1]), max_size=3)


def _record(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{name: _of(hint) for name, hint in schema.fields_of(cls).items()})


@hypothesis.settings(max_examples=30)
@hypothesis.given(_record(jobs.JobSpec))
def test_round_trip(spec: jobs.JobSpec) -> None:
    back = specs.from_json(specs.to_json(spec))
    assert back == spec
    # 1 == 1.0 == True, so equality alone would miss a changed type.
    assert repr(back) == repr(spec)


def test_the_json_has_the_tables_of_the_toml() -> None:
    spec = jobs.JobSpec(name="x", launch=jobs.Launch(script="train.py"), args={"lr": 0.1})
    tables = json.loads(specs.to_json(spec))
    assert list(tables) == [
        *("job", "resources", "environment", "container", "launch", "args", "array", "code"),
        *("metrics", "tracking", "alerts", "retry", "sbatch"),
    ]
    assert (tables["job"]["name"], tables["launch"]["script"]) == ("x", "train.py")


def test_a_spec_of_another_version_is_refused() -> None:
    with pytest.raises(errors.SpecError) as caught:
        specs.from_json('{"job": {"name": "x", "colour": "red"}}')
    assert str(caught.value).startswith("stored spec: job.colour: unknown key.")
    with pytest.raises(errors.SpecError, match="stored spec: not JSON"):
        specs.from_json("{")

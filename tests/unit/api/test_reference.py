"""The reference of the Python API is complete."""

from __future__ import annotations

import inspect
import types
import typing

import pytest

import orchestrator as orc
from orchestrator import api, specs
from orchestrator.api import descriptions
from tests import python_reference

PUBLIC = [
    *((f"orc.{name}", getattr(api, name)) for name in python_reference.FUNCTIONS),
    *(
        (f"orc.{kind}.{name}", member)
        for kind in python_reference.CLASSES
        for name, member in python_reference.members(getattr(orc, kind))
    ),
]


def test_page_is_written() -> None:
    assert python_reference.PAGE.read_text() == python_reference.page(), (
        "python -m tests.reference writes it"
    )


@pytest.mark.parametrize(("name", "member"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_each_name_is_described(name: str, member: object) -> None:
    function = member.fget if isinstance(member, property) else member
    text = inspect.getdoc(function) or ""
    assert text.split("\n")[0].endswith((".", ":", '"')), name
    if isinstance(function, types.FunctionType):
        parameters = set(inspect.signature(function).parameters) - {"self"}
        for parameter in parameters:
            assert (
                f"{parameter}:" in text
                or f"{parameter}," in text
                or name
                in (
                    "orc.render",
                    "orc.Session.render",
                )
            ), f"{name}: {parameter}"


def test_all_names_are_listed() -> None:
    listed = {*python_reference.FUNCTIONS, *python_reference.CLASSES, "errors"}
    assert set(orc.__all__) == listed
    assert set(api.__all__) == listed - {"errors"}
    assert set(orc.__all__) <= set(dir(orc))


def test_flags_are_those_of_the_command() -> None:
    hints = typing.get_type_hints(descriptions.Flags)
    assert list(hints) == [flag.names[0].replace("-", "_") for flag in specs.FLAGS]

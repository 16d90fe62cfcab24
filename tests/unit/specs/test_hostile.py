"""Hostile text in every string field: refused with exit 3, or kept exactly as it is.

Walks over the dataclasses' fields, so that a new field is covered or fails here.
"""

import collections.abc
import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import errors, jobs, specs
from orchestrator.specs import toml_tables
from orchestrator.toml import schema, values

CONTROL = ["a\nb", "a\rb", "a\tb", "a\0b", "\x1b[2J", "a\x7fb", "a\x85b", "a\u2028b", "a\u202eb"]
TEXT = [
    "x --partition=x",
    "x;touch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "${HOME}",
    "a'b",
    'a"b',
    "a#b",
    "a\\",
    "naïve 日本語 🚀",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "../../etc/passwd",
    "%j%N",
    "--wrap=x",
]


def string_fields() -> Iterator[tuple[str, str]]:
    """Give table and key of everything that may hold a string of any wording."""
    for table, hint in schema.fields_of(toml_tables.FILE).items():
        if not dataclasses.is_dataclass(hint):
            yield table, "*"
            continue
        for key, kind in schema.fields_of(hint).items():
            if key in ("batch_file", *jobs.SET_BY_US):  # no keys of a spec's text
                continue
            if key == "variables":
                yield table, key
            if any(
                part in (str, jobs.PluginName) or typing.get_origin(part) is tuple
                for part in schema.kinds_of(kind)
            ):
                yield table, key
            else:
                known = (int, bool, types.NoneType)
                assert all(
                    part in known or typing.get_origin(part) in (Literal, collections.abc.Mapping)
                    for part in schema.kinds_of(kind)
                ), f"{table}.{key}: a type that this test does not know"


#: Fields with free text; all others have a format.
FREE = {
    ("job", "comment"),
    ("job", "labels"),
    ("environment", "modules"),
    ("environment", "conda"),
    ("environment", "venv"),
    ("environment", "variables"),
    # Of no effect but to select a file, when the script is rendered.
    ("environment", "fabric"),
    ("environment", "secrets_file"),
    ("environment", "setup"),
    ("container", "image"),
    ("container", "binds"),
    ("job", "output"),
    ("job", "error"),
    ("job", "chdir"),
    ("code", "allow"),
    ("launch", "script"),
    ("launch", "program"),
    ("launch", "command"),
    ("metrics", "gpu_csv"),
    ("tracking", "project"),
    ("tracking", "entity"),
    ("args", "*"),
    ("sbatch", "*"),
}
#: Text that must surround the value.
AROUND = {
    ("job", "labels"): "key={}",
    ("job", "output"): "%j-{}",
    ("job", "error"): "%j-{}",
    ("container", "binds"): "/{}:/x",
}
#: Text that Slurm, apptainer or the log reader would interpret.
SPECIAL = {
    ("job", "output"): {"a\\", "%j%N", "{% raw %}"},
    ("job", "error"): {"a\\", "%j%N", "{% raw %}"},
    ("environment", "modules"): {"--wrap=x"},
    ("environment", "conda"): {"--wrap=x"},
    ("environment", "venv"): {"--wrap=x"},
    ("environment", "fabric"): {"--wrap=x"},
    ("environment", "secrets_file"): {"--wrap=x"},
    ("container", "image"): {"--wrap=x"},
    ("job", "chdir"): {"--wrap=x"},
    ("launch", "script"): {"--wrap=x"},
}


def load(table: str, key: str, text: str, folder: Path) -> jobs.JobSpec:
    """Return a spec that is good but for the text in this field."""
    data: dict[str, dict[str, Any]] = {"job": {"name": "x"}, "launch": {"launcher": "python"}}
    if table == "container":
        data["container"] = {"runtime": "pyxis", "image": "a#b"}
    if table != "launch":
        data["launch"]["script"] = "train.py"
    keys = data.setdefault(table, {})
    hint = schema.hint_at(toml_tables.FILE, (table, key))
    if key == "variables":
        keys[key] = {"VARIABLE": text}
    elif key == "*":
        keys["key"] = text
    else:
        keys[key] = [text] if schema.bare(hint) == tuple[str, ...] else text
    if (table, key) == ("resources", "gpu_type"):
        keys["gpus_per_node"] = 1
    lines = []
    for name, pairs in data.items():
        lines.append(f"[{name}]")
        lines.extend(f"{part} = {_toml(value)}" for part, value in pairs.items())
    path = folder / "spec.toml"
    path.write_text("\n".join(lines))
    return specs.load(path, folder=None)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_of(spec: jobs.JobSpec, table: str, key: str) -> object:
    record = spec if table == "job" else getattr(spec, table)
    if key == "*":
        return record["key"]
    value = getattr(record, key)
    return value["VARIABLE"] if key == "variables" else value[0] if type(value) is tuple else value


@pytest.mark.parametrize(("table", "key"), [*string_fields()])
def test_control_characters_are_refused(table: str, key: str, tmp_path: Path) -> None:
    for text in CONTROL:
        whole = AROUND.get((table, key), "{}").format(text)
        if (table, key) in toml_tables.MULTI_LINE and text in ("a\nb", "a\tb"):
            assert value_of(load(table, key, whole, tmp_path), table, key) == whole
            continue
        with pytest.raises(errors.SpecError) as caught:
            load(table, key, whole, tmp_path)
        assert caught.value.exit_code == 3
        (problem,) = caught.value.problems
        assert "which is not allowed" in problem.message
        assert problem.line is not None
        assert str(caught.value).count("\n") == 2
        assert str(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize(("table", "key"), [*string_fields()])
def test_other_text_is_rejected_or_kept_unchanged(table: str, key: str, tmp_path: Path) -> None:
    field = (table, key)
    for text in TEXT:
        whole = AROUND.get(field, "{}").format(text)
        if field in FREE and text not in SPECIAL.get(field, ()):
            spec = load(table, key, whole, tmp_path)
            assert value_of(spec, table, key) == whole
            # Nothing else than this field differs from the spec with a harmless text.
            harmless = load(table, key, AROUND.get(field, "{}").format("x"), tmp_path)
            before, after = (specs.to_json(item) for item in (harmless, spec))
            assert sum(
                old != new for old, new in zip(before.split("\n"), after.split("\n"), strict=True)
            ) == (whole != "x")
        else:
            with pytest.raises(errors.SpecError) as caught:
                load(table, key, whole, tmp_path)
            assert caught.value.exit_code == 3


@pytest.mark.parametrize("table", ["args", "sbatch", "environment.variables"])
@pytest.mark.parametrize("key", [*CONTROL, *TEXT, ""])
def test_hostile_keys_are_refused(table: str, key: str, tmp_path: Path) -> None:
    # A key that is read at all is refused: it would become an option or a variable's name.
    path = tmp_path / "spec.toml"
    text = f'[job]\nname = "x"\n[launch]\nscript = "x"\n[{table}]\n{_toml(key)} = "x"\n'
    path.write_text(text)
    with pytest.raises(errors.SpecError) as caught:
        specs.load(path, folder=None)
    assert str(caught.value).replace("\n", "").isprintable()


def test_bytes_that_are_no_utf8_from_the_command_line_are_refused() -> None:
    for flags, program in (
        ({"job.comment": "a\udcff"}, ["x"]),
        ({}, ["x", "\udcff"]),
    ):
        with pytest.raises(errors.SpecError, match="a byte that is not UTF-8") as caught:
            specs.load(None, flags={"job.name": "x", **flags}, program=program)
        str(caught.value).encode()


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    st.sampled_from(sorted(string_fields())), st.text(max_size=40), st.text(max_size=5)
)
def test_any_text_through_set_is_refused_or_kept(
    field: tuple[str, str], text: str, key: str
) -> None:
    table, name = field
    name = "key" if name == "*" else f"variables.A{key}" if name == "variables" else name
    setting = f"{table}.{name}={text}"
    try:
        spec = specs.load(None, [setting], {"job.name": "x"}, ["x"], folder=None)
    except errors.SpecError as error:
        assert values.forbidden_character(str(error), multi_line=True) == ""
    else:
        assert specs.from_json(specs.to_json(spec)) == spec

"""docs/json.md: the kinds of JSON that commands print, from the types of their rows.

`python -m tests.reference` writes it; tests/unit/cli/test_help.py compares it with the code.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.cli import commands, output
from orchestrator.rows.contract import kinds, schemas
from tests import reference

PAGE = pathlib.Path(__file__).parents[1] / "docs/json.md"
_TITLE = """\
# JSON output

Written by `python -m tests.reference` from the types of the rows. A command with `--json` prints \
an object with `schema` (`"orchestrator/v1"`), `kind` and `items`; with `--format jsonl` each \
line is an item. `orchestrator schema COMMAND` prints the same as a JSON Schema. Times are ISO \
8601 with a time zone; numbers that are not finite are the texts `"NaN"`, `"Infinity"` and \
`"-Infinity"`. How to use it: [howto/scripting.md](howto/scripting.md)."""
#: Of a list of words; the schema has all.
_MAX_WORDS = 12
#: What the JSON Schemas of simple types are called.
_WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false", "null": "null"}


def page() -> str:
    """Return the page as it should be."""
    printers: dict[str, list[str]] = {}
    for command, context in reference.everything():
        effects = commands.effects_of(command)
        for kind in effects.prints if effects else ():
            printers.setdefault(kind, []).append(context.command_path)
    parts = [_TITLE]
    definitions: dict[str, Any] = {}
    for kind, row in kinds.KINDS.items():
        schema = schemas.of_output("", output.SCHEMA, {kind: row})
        of_kind = schema["$defs"][row.__name__]
        definitions |= {name: each for name, each in schema["$defs"].items() if each != of_kind}
        parts.append(f"## {kind}")
        parts.append(f"Printed by {', '.join(f'`{path} --json`' for path in printers[kind])}.")
        parts.append("\n".join(_table(of_kind)))
    parts.append("## Parts of items")
    for name, each in sorted(definitions.items()):
        parts.append(f"### {name}")
        parts.append("\n".join(_table(each)))
    return "\n\n".join(parts) + "\n"


def _table(row: Mapping[str, Any]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    fields = {**row["properties"], **row.get("patternProperties", {})}
    for name, schema in fields.items():
        is_named = name in row["properties"]
        note = "" if name in row["required"] or not is_named else "not always present. "
        shown = f"`{name}`" if is_named else f"names like `{name}`"
        meaning = f"{note}{schema.get('description', '')}".strip()
        yield f"| {shown} | {_type(schema)} | {meaning[:1].upper()}{meaning[1:]} |".replace(
            "\\", "\\\\"
        )


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if len(schema.get("enum", ())) > _MAX_WORDS:
        return f"one of {len(schema['enum'])} words, such as `{schema['enum'][0]}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        parts = schema["anyOf"]
        if {"type": "number"} in parts:
            return "number"
        return " or ".join(map(_type, parts))
    if schema.get("format") == "date-time":
        return "time"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        return f"object of {_type(schema['additionalProperties'])}"
    return _WORDS.get(schema.get("type", ""), "any value")

"""Checks the JSON that commands print against its schema: what `orchestrator schema` documents."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema

from orchestrator.cli import output
from orchestrator.rows.contract import kinds, schemas


@functools.cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = schemas.of_output(kind, output.SCHEMA, {kind: kinds.KINDS[kind]})
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check(envelope: Mapping[str, Any]) -> None:
    """Raise AssertionError with the first part of an envelope that its schema does not allow."""
    error = next(_validator(envelope["kind"]).iter_errors(envelope), None)
    if error is not None:
        # For anyOf the innermost message says what is wrong.
        part = "/".join(map(str, error.absolute_path))
        raise AssertionError(f"{envelope['kind']} {part}: {error.message[:2000]}")

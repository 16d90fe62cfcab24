"""Records as JSON files: read with their types checked, and replaced as a whole."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

from orchestrator import errors, files

#: An environment may be 2 MiB (ARG_MAX), and JSON writes a control character in six.
_LIMIT_BYTES = 16 * 1024 * 1024


def fields(record: type, data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what the record knows, each of its type.

    A runner that began before an upgrade reads newer files. A wrong type is never passed on: text
    in place of a number would be evaluated where the script's shell computes with it.
    """
    known = {field.name: str(field.type) for field in dataclasses.fields(record)}
    found = {name: value for name, value in data.items() if name in known}
    for name, value in found.items():
        if not _is_of(known[name], value):
            raise damaged(path, f"{name} is no {known[name]}")
    return found


def _is_of(annotation: str, value: Any) -> bool:
    """Tell whether a value is of the type that a field of a record here is declared with."""
    wanted = annotation.removesuffix(" | None")
    if value is None:
        return wanted != annotation
    match wanted:
        case "int":
            return type(value) is int
        case "float":
            return type(value) in (int, float) and math.isfinite(value)
        case "tuple[str, ...]":
            return isinstance(value, tuple) and all(type(one) is str for one in value)
        case "tuple[int, ...]":
            return isinstance(value, tuple) and all(type(one) is int for one in value)
        case "Mapping[str, str]":
            return isinstance(value, dict) and all(type(one) is str for one in value.values())
        case "tuple[Ended, ...]":
            return isinstance(value, tuple) and all(dataclasses.is_dataclass(one) for one in value)
    return type(value).__name__ == wanted.rpartition(".")[2]


def read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(files.read_bytes(path, limit_bytes=_LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except (files.NotRegularFileError, files.TooLargeError) as exc:
        raise damaged(path, str(exc.strerror)) from exc
    except (ValueError, RecursionError) as exc:
        raise damaged(path, str(exc)) from exc
    if not isinstance(data, dict):
        raise damaged(path, "it is no JSON object")
    return data


def damaged(path: Path, why: str) -> errors.OrchestratorError:
    return errors.OrchestratorError(f"{path} is damaged ({why}); move it away")


def write(path: Path, text: str) -> None:
    """Replace a file as a whole; on disk before this returns, or a crash might leave it empty."""
    draft = path.with_name(f".{path.name}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)

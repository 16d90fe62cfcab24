"""Failure causes. Their titles and fixes are in causes.toml, together with the log rules."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any, TypeAlias

#: Why a job failed: WORD of `[cause.WORD]`; also in the database, in JSON and in `[retry]`.
Cause: TypeAlias = str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CauseInfo:
    """What holds for every failure with one cause; causes.toml describes the keys."""

    title: str
    cures: tuple[str, ...]
    acts: str = "user"
    retry: str = "no"


@functools.cache
def known() -> Mapping[Cause, CauseInfo]:
    """Return title, fixes and retry class of each cause."""
    tables = shipped_document()["cause"].items()
    return {
        cause: CauseInfo(**{**table, "cures": tuple(table["cures"])}) for cause, table in tables
    }


@functools.cache
def shipped_document() -> Mapping[str, Any]:
    """Return the contents of causes.toml."""
    file = importlib.resources.files("orchestrator").joinpath("causes.toml")
    return tomllib.loads(file.read_text("utf-8"))

"""Failure causes. Their titles and fixes are in causes.toml, together with the log rules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TypeAlias

from orchestrator.toml import documents

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
    tables = documents.shipped("causes.toml")["cause"].items()
    return {
        cause: CauseInfo(**{**table, "cures": tuple(table["cures"])}) for cause, table in tables
    }

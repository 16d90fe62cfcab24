"""Checks of the rules in `[retry]`, in a spec or in a profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from orchestrator import jobs
from orchestrator.jobs import retry
from orchestrator.toml import key_paths, schema

#: path of a key below the table, and what is wrong with it
Finding: TypeAlias = tuple[key_paths.KeyPath, str]

_CAUSES = (*retry.RETRIED, retry.CONTINUED, *retry.ASKED_FOR, *retry.CHANGED)


def findings(rules: jobs.Retry) -> Iterator[Finding]:
    """Yield what is wrong with rules whose values are right."""
    for index, cause in enumerate(rules.on or ()):
        if error := _unknown(cause):
            yield ("on", index), error
        elif cause in retry.CHANGED and cause not in rules.changes:
            yield (
                ("on", index),
                f"{cause} would happen again if nothing changes: add [retry.changes.{cause}]",
            )
    for cause, limit in rules.limits.items():
        if error := _unknown(cause):
            yield ("limits", cause), error
        elif limit < 0:
            yield ("limits", cause), f"must be >= 0 (got {limit})"
    for cause, changes in rules.changes.items():
        if error := _unknown(cause):
            yield ("changes", cause), error
        elif not changes:
            yield ("changes", cause), 'changes nothing: write for example "resources.mem" = "x2"'
        elif rules.on is not None and cause not in rules.on:
            yield ("changes", cause), f'needs "{cause}" in on'
    if (rules.checkpoint_dir or "").startswith("~"):
        yield ("checkpoint_dir",), "~ is not expanded here: write the whole path"
    if rules.max_retries is None and rules != jobs.Retry():
        yield (), "has no effect without max_retries: set it, for example max_retries = 3"


def _unknown(cause: str) -> str:
    """Return why a job cannot be retried after this cause; "": it can."""
    if cause in _CAUSES:
        return ""
    return f"not a cause after which a retry can help. {schema.advice(cause, _CAUSES)}"

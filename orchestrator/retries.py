"""What is wrong with the rules of `[retry]`, in a spec or in a profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from orchestrator import jobs
from orchestrator.jobs import retry
from orchestrator.text import escaping
from orchestrator.toml import key_paths, schema

#: Path of a key below the table, and what is wrong there.
Finding: TypeAlias = tuple[key_paths.KeyPath, str]

_LEAST = {
    **{"max_retries": 0, "gpu_hours": 1, "backoff_seconds": 0},
    **{"backoff_max_seconds": 1, "exclude_after": 0},
}
_MOST = 10**9
_KNOWN = (*retry.RETRIED, retry.CONTINUED, *retry.ASKED_FOR, *retry.CHANGED)


def findings(rules: jobs.Retry) -> Iterator[Finding]:
    """Give everything that is wrong with rules whose types are right."""
    for key, least in _LEAST.items():
        number = getattr(rules, key)
        if number is not None and not least <= number <= _MOST:
            yield (key,), f"must be from {least} to {_MOST} (got {number})"
    for place, cause in enumerate(rules.on or ()):
        if told := _misfit(cause):
            yield ("on", place), told
        elif cause in retry.CHANGED and cause not in rules.changes:
            yield ("on", place), _as_it_was(cause)
    for cause, limit in rules.limits.items():
        if told := _misfit(cause):
            yield ("limits", cause), told
        elif limit < 0:
            yield ("limits", cause), f"must be >= 0 (got {limit})"
    for cause, changes in rules.changes.items():
        if told := _misfit(cause):
            yield ("changes", cause), told
        elif not changes:
            told = 'names nothing to change: write such as "resources.mem" = "x2"'
            yield ("changes", cause), told
        elif rules.on is not None and cause not in rules.on:
            yield ("changes", cause), f'needs "{cause}" in on'
    if (rules.checkpoint_dir or "").startswith("~"):
        yield ("checkpoint_dir",), "~ is not replaced here: write the whole path"
    if rules.max_retries is None and rules != jobs.Retry():
        yield (), "says nothing without max_retries: set it, such as max_retries = 3"


def _misfit(cause: str) -> str:
    """Return why nothing can follow this cause; empty where something may."""
    if cause in _KNOWN:
        return ""
    if near := schema.did_you_mean(cause, _KNOWN):
        return f'unknown cause. Did you mean "{near}"?'
    return (
        f"{escaping.visible(cause)!r} is no cause after which another start could do better; "
        f"those are: {', '.join(_KNOWN)}"
    )


def _as_it_was(cause: str) -> str:
    return (
        f"{cause} comes again where the job is asked for as it was: "
        f"say what to change in [retry.changes.{cause}]"
    )


def change_keys(rules: jobs.Retry) -> Iterator[tuple[key_paths.KeyPath, str, jobs.ArgumentValue]]:
    """Give the path below the table, the key and the value of each change."""
    for cause, keys in rules.changes.items():
        for key, value in keys.items():
            yield ("changes", cause, key), key, value

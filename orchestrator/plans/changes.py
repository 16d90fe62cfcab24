"""What has changed since a plan was made."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.plans import records


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a sentence for each entry of Effect.basis that is new, gone or different."""
    sentences = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None:
            sentences.append(f"{name} was not part of the plan")
        elif new is None:
            sentences.append(f"{name} is not part of it any more")
        elif old.startswith(records.DIGEST):
            sentences.append(f"{name} has changed")
        else:
            sentences.append(f"{name} was {old} and is {new}")
    return sentences

"""Whether runs that are compared with each other had the same code and environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

#: Groups of equal runs that a note names.
_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """What a run was made with."""

    #: how commands name the job
    job: str
    #: CodeVersion.identity; "": not recorded
    code: str = ""
    #: equal for equal environments; "": not recorded
    environment: str = ""


def notes(runs: Sequence[Identity]) -> list[str]:
    """Return a sentence on the code, and one on the environment, if the runs differ in it.

    Runs of which it is not recorded are left out.
    """
    sentences = []
    groups = _groups(runs, "code")
    if len(groups) > 1:
        parts = [f"{len(group)} ran {group[0].code} (such as {group[0].job})" for group in groups]
        sentences.append(f"the runs differ in their code: {_listed(parts)}; {_advice(groups)}")
    groups = _groups(runs, "environment")
    if len(groups) > 1:
        parts = [f"{len(group)} had that of {group[0].job}" for group in groups]
        sentences.append(
            f"the runs differ in their environment: {_listed(parts)}; {_advice(groups)}"
        )
    return sentences


def _groups(runs: Sequence[Identity], name: str) -> list[list[Identity]]:
    """Return the runs with the same value, the largest group first."""
    groups: dict[str, list[Identity]] = {}
    for run in runs:
        if value := getattr(run, name):
            groups.setdefault(value, []).append(run)
    return sorted(groups.values(), key=len, reverse=True)


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - _SHOWN
    rest = [f"{more} more {'version' if more == 1 else 'versions'}"] if more > 0 else []
    return ", ".join([*parts[:_SHOWN], *rest])


def _advice(groups: Sequence[Sequence[Identity]]) -> str:
    return f"`orchestrator diff {groups[0][0].job} {groups[1][0].job}` shows the differences"

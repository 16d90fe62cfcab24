"""docs/explain.md shows the failures that tests/cluster/test_explain.py produces."""

from __future__ import annotations

import pathlib

from orchestrator.diagnosis import causes
from tests.cluster import failures

PAGE = pathlib.Path(__file__).parents[3] / "docs/explain.md"


def test_table_matches_the_cases() -> None:
    # To write it again: python -c "from tests.cluster import failures; print(failures.table())"
    assert PAGE.read_text(encoding="utf-8").endswith(f"\n\n{failures.table()}")
    assert len({case.name for case in failures.CASES}) == len(failures.CASES)
    assert {case.cause for case in failures.CASES} - {None} <= set(causes.known())

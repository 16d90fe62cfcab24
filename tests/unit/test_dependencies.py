"""Which jobs' ends a dependency asks for."""

from __future__ import annotations

import pytest

from orchestrator.controller import dependencies


@pytest.mark.parametrize(
    ("dependency", "job_ids"),
    [
        ("", []),
        ("singleton", []),
        # Met by any end: a job that Slurm has forgotten has ended.
        ("afterany:7,after:8+5", []),
        ("afterok:7:8,afternotok:9", ["7", "8", "9"]),
        ("afterok:7?aftercorr:12_3", ["7", "12"]),
        ("afterok:12_*:12_3:12+10,afterany:5", ["12"]),
    ],
)
def test_on_ends(dependency: str, job_ids: list[str]) -> None:
    assert dependencies.on_ends(dependency) == job_ids

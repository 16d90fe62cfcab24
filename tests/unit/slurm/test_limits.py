"""Limits on jobs in the queue: lines of sacctmgr 24.11 from the test cluster."""

from __future__ import annotations

import pytest

from orchestrator.slurm import limits

OWN = "proj||||\nproj|gpu|tiny|40|\nother|||5000|25\n"
QOS = "normal|||\ntiny|3||\nshared||70|60\nodd|\n"
FOUND = limits.Limits(
    own=tuple(limits.parse_sacctmgr_own_limits(OWN)),
    by_qos=limits.parse_sacctmgr_qos_limits(QOS),
)


def test_lines_are_read() -> None:
    assert FOUND.own == (
        limits.OwnLimit(account="proj", partition=None, default_qos="normal", jobs=None),
        limits.OwnLimit(account="proj", partition="gpu", default_qos="tiny", jobs=40),
        limits.OwnLimit(account="other", partition=None, default_qos="normal", jobs=25),
    )
    assert FOUND.by_qos == {"tiny": 3, "shared": 60}
    assert limits.parse_sacctmgr_own_limits("sacctmgr: error: something else\n") == []


@pytest.mark.parametrize(
    ("account", "partition", "qos", "most"),
    [
        ("proj", None, None, None),
        ("proj", "cpu", "normal", None),
        ("proj", "cpu,gpu", None, 3),
        ("proj", "gpu", "normal", 40),
        ("proj", None, "tiny", 3),
        ("other", None, "shared", 25),
        # Which account it will be is not known: the least.
        (None, None, None, 25),
        ("stranger", None, None, None),
    ],
)
def test_the_least_limit_counts(
    account: str | None, partition: str | None, qos: str | None, most: int | None
) -> None:
    assert FOUND.most_jobs(account=account, partition=partition, qos=qos) == most

"""Limits on jobs in the queue: lines of sacctmgr 24.11 from the test cluster."""

from __future__ import annotations

import pytest

from orchestrator.slurm import sacctmgr

OWN = "proj||||\nproj|gpu|tiny|40|\nother|||5000|25\n"
QOS = "normal|||\ntiny|3||\nshared||70|60\nodd|\n"
FOUND = sacctmgr.SubmitLimits(
    associations=tuple(sacctmgr.parse_association_limits(OWN)),
    by_qos=sacctmgr.parse_qos_limits(QOS),
)


def test_lines_are_read() -> None:
    assert FOUND.associations == (
        sacctmgr.AssociationLimit(
            account="proj", partition=None, default_qos="normal", max_jobs=None
        ),
        sacctmgr.AssociationLimit(account="proj", partition="gpu", default_qos="tiny", max_jobs=40),
        sacctmgr.AssociationLimit(
            account="other", partition=None, default_qos="normal", max_jobs=25
        ),
    )
    assert FOUND.by_qos == {"tiny": 3, "shared": 60}
    assert sacctmgr.parse_association_limits("sacctmgr: error: something else\n") == []


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
    assert FOUND.max_jobs(account=account, partition=partition, qos=qos) == most

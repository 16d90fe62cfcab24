"""Limits on jobs in the queue: lines of sacctmgr 24.11 from the test cluster."""

from __future__ import annotations

import pytest

from orchestrator.slurm import sacctmgr

ASSOCIATIONS = "proj|||||\nproj|gpu|normal,tiny|tiny|40|\nother||||5000|25\n"
QOS = "normal|||\ntiny|3||\nshared||70|60\nodd|\n"
LIMITS = sacctmgr.SubmitLimits(
    associations=tuple(sacctmgr.parse_associations(ASSOCIATIONS)),
    by_qos=sacctmgr.parse_qos_limits(QOS),
)


def test_parsed_lines() -> None:
    assert LIMITS.associations == (
        sacctmgr.Association(account="proj", partition=None),
        sacctmgr.Association(
            account="proj",
            partition="gpu",
            qos=("normal", "tiny"),
            default_qos="tiny",
            max_jobs=40,
        ),
        sacctmgr.Association(account="other", partition=None, max_jobs=25),
    )
    assert LIMITS.by_qos == {"tiny": 3, "shared": 60}
    assert sacctmgr.parse_associations("sacctmgr: error: something else\n") == []


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
def test_the_smallest_limit_applies(
    account: str | None, partition: str | None, qos: str | None, most: int | None
) -> None:
    assert LIMITS.max_jobs(account=account, partition=partition, qos=qos) == most

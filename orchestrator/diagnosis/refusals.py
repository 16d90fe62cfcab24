"""What sbatch or slurmctld says when it does not take a job -> the cause.

Source: slurm_errno.c and the texts recorded for tests/unit/slurm, of 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re

from orchestrator.diagnosis.causes import Cause

#: The first that fits counts: "account/partition combination" is of the account.
_REFUSALS = (
    (Cause.BAD_ACCOUNT, r"Invalid account|Invalid wckey|Access/permission denied"),
    (Cause.BAD_QOS, r"(?i:Invalid qos)"),
    (
        Cause.BAD_PARTITION,
        r"(?i:Invalid partition)|No partition specified|Requested nodes not in this partition"
        r"|not permitted to use this partition",
    ),
    (
        Cause.UNAVAILABLE,
        r"Required partition not available|System submissions disabled",
    ),
    (
        Cause.LIMIT_REACHED,
        r"Job violates accounting/QOS policy|(?:Assoc|QOS)[A-Za-z]+Limit|MaxJobCount"
        r"|Resource temporarily unavailable|temporarily unable to accept|Rate limit exceeded"
        r"|More processors requested than permitted",
    ),
    (Cause.DEPENDENCY, r"[Dd]ependency (?:problem|chain)|Circular job dependency"),
    (
        Cause.BAD_RESOURCES,
        r"Requested node configuration|Memory specification|Memory required by task|CPU count"
        r"|[Nn]ode count|Task count|Invalid feature|Invalid node name|reservation"
        r"|generic resource|GRES|Trackable RESource|license specification|time limit is invalid"
        r"|Invalid --|job array specification",
    ),
)
_CAUSES = tuple((cause, re.compile(pattern)) for cause, pattern in _REFUSALS)


def cause_of(text: str) -> Cause:
    """Return why a job was not taken; NOT_SUBMITTED where the words tell nothing."""
    for cause, pattern in _CAUSES:
        if pattern.search(text):
            return cause
    return Cause.NOT_SUBMITTED

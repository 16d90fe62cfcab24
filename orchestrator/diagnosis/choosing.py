"""Of all that was found, what counts. Pure.

In this order, the first that is there (docs/design.md, "Causes"):

1. what the kernel or Slurm did: the state NODE_FAIL, PREEMPTED, OUT_OF_MEMORY, DEADLINE, or a line
   that says so;
2. an error of the program's own, of the last bout of errors the first; not when Slurm ended the job
   and the training went on between the error and that;
3. a process that was ended by a signal, then a rank that waited for another one in vain;
4. Slurm's TIMEOUT or CANCELLED;
5. our script's own exit codes, what follows from other processes' ends, signals, the exit code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Finding, Level

#: Ordinary lines after which errors belong to another bout: the program had gone on.
BOUT_LINES = 500
#: Ordinary lines between an error and Slurm's end of the job for which the job did go on: ranks
#: that wait for a dead one print next to nothing.
ENDED_LINES = 50
_OWN = (Level.ROOT, Level.CRASH, Level.TIMEOUT)


def chosen(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that tells the cause; None where nothing does."""
    weighed = [finding for finding in weigh(findings) if finding.level < Level.WARNING]
    if not weighed:
        return None
    lowest = min(finding.level for finding in weighed)
    candidates = [finding for finding in weighed if finding.level is lowest]
    # The last of what merely looks like an error: programs end with it.
    return candidates[-1] if lowest is Level.HINT else candidates[0]


def weigh(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the levels that they have beside each other."""
    found = [_of_a_step(one, findings) for one in last_bout(findings)]
    end = next((place for place, one in enumerate(found) if one.level is Level.ENDED), None)
    if end is None:
        return found
    quiet = 0
    weighed = list(found)
    for place in range(end - 1, -1, -1):
        quiet += found[place].quiet_lines
        if quiet > ENDED_LINES and found[place].level in _OWN:
            weighed[place] = dataclasses.replace(found[place], level=Level.HINT)
    for place in range(end + 1, len(found)):
        if found[place].level in _OWN:
            weighed[place] = dataclasses.replace(found[place], level=Level.AFTER)
    return weighed


def _of_a_step(one: Finding, findings: Sequence[Finding]) -> Finding:
    """Let the end of a step weigh less where one of its tasks failed: srun --kill-on-bad-exit."""
    if one.cause is not Cause.CANCELLED or one.level is not Level.ENDED:
        return one
    whole = any(
        other.level is Level.ENDED and "*** JOB" in other.evidence.text for other in findings
    )
    failed = any(other.rule == "srun-task" and other.order < one.order for other in findings)
    return one if whole or not failed else dataclasses.replace(one, level=Level.HINT)


def last_bout(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of the last bout of errors; those before it were lived through.

    Where a bout has nothing that could be a cause, the one before counts.
    """
    bouts: list[list[Finding]] = [[]]
    for finding in findings:
        if finding.level is Level.WARNING:
            continue
        bouts[-1].append(finding)
        if finding.quiet_lines > BOUT_LINES:
            bouts.append([])
    strong = [bout for bout in bouts if any(one.level < Level.OUTCOME for one in bout)]
    return (strong or [bout for bout in bouts if bout] or [[]])[-1]

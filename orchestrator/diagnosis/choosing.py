"""Of all that was found, what counts. Pure.

In this order, the first that is there (docs/design.md, "Causes"):

1. what the kernel or Slurm did: the state NODE_FAIL, PREEMPTED, OUT_OF_MEMORY, DEADLINE, or a line
   that says so;
2. an error of the program's own, of the last bout of errors the first; not when the training went
   on between the error and a traceback of another one, or Slurm's end of the job;
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
#: Ordinary lines between a line that reads as an error and a traceback of another one.
LINE_LINES = 10
#: Ordinary lines after all errors of a log from anywhere, of which nothing tells that it failed.
ALIVE_LINES = 100
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
    found = _lived_through([_of_a_step(one, findings) for one in last_bout(findings)])
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


def _lived_through(findings: Sequence[Finding]) -> list[Finding]:
    """Let errors weigh less after which the program went on, to end by a traceback of another.

    Programs tell of exceptions that they catch: what they do without, what they try again.
    """
    weighed = list(findings)
    quiet, ended = 0, False
    for place in range(len(weighed) - 1, -1, -1):
        one = weighed[place]
        quiet += one.quiet_lines
        most = ENDED_LINES if one.traceback else LINE_LINES
        if ended and quiet > most and one.level in _OWN:
            weighed[place] = dataclasses.replace(one, level=Level.HINT)
        elif one.level is Level.ROOT and one.traceback:
            quiet, ended = 0, True
    return weighed


def went_on(findings: Sequence[Finding]) -> bool:
    """Tell whether the log goes on after all that was found, as one of a program that runs."""
    quiet = 0
    for one in reversed(findings):
        quiet += one.quiet_lines
        if one.level is not Level.WARNING:
            return quiet > (LINE_LINES if one.level is Level.HINT else ALIVE_LINES)
    return False


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
    quiet = 0
    for finding in findings:
        if finding.level is not Level.WARNING:
            if bouts[-1] and quiet > _most(bouts[-1][-1]):
                bouts.append([])
            bouts[-1].append(finding)
            quiet = 0
        quiet += finding.quiet_lines
    strong = [bout for bout in bouts if any(one.level < Level.OUTCOME for one in bout)]
    return (strong or [bout for bout in bouts if bout] or [[]])[-1]


def _most(finding: Finding) -> int:
    """Return how many ordinary lines may follow until it belongs to an earlier bout."""
    # What follows the end of a whole job is the job's next start.
    return ENDED_LINES if "*** JOB " in finding.evidence.text else BOUT_LINES

"""Which of the findings is the cause. Pure.

The first of these that exists (docs/design.md, "Failure causes"):

1. what the kernel or Slurm did: the states NODE_FAIL, PREEMPTED, OUT_OF_MEMORY and DEADLINE, or a
   line that reports it;
2. the first error of the program in the last group of errors, unless the program continued between
   the error and the traceback of another one, or until Slurm ended the job;
3. a process that was killed by a signal, then a rank that waited in vain for another one;
4. Slurm's TIMEOUT or CANCELLED;
5. exit codes of our script, consequences of the end of other processes, signals, the exit code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator.diagnosis.records import Finding, Level

#: After this many ordinary lines an error belongs to another group: the program had continued.
GROUP_LINES = 500
#: After this many ordinary lines between an error and Slurm's end of the job, the job had
#: continued: ranks that wait for a dead one print almost nothing.
_ENDED_LINES = 50
#: The same between an error line without a traceback and a traceback of another error.
_LINE_LINES = 10
#: The same after all errors of a log without a job.
_ALIVE_LINES = 100
#: Rules for reports of a failed process that name no cause.
_REPORTS = (
    *("srun-task", "child-failed", "torchrun-killed"),
    *("torchrun-segfault", "torchrun-abort", "torchrun-bus-error"),
)
#: Rules for what srun reports of a task that failed.
_TASK_ENDS = (
    *("srun-task", "srun-killed", "srun-terminated"),
    *("srun-segfault", "srun-aborted"),
)
_ERRORS = (Level.ROOT, Level.CRASH, Level.TIMEOUT)


def select(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that shows the cause, if there is one."""
    candidates = [finding for finding in _weighed(findings) if finding.level < Level.WARNING]
    if not candidates:
        return None
    lowest = min(finding.level for finding in candidates)
    candidates = [finding for finding in candidates if finding.level is lowest]
    # Of lines that only look like errors the last one counts: programs end with it.
    if lowest is Level.HINT:
        return candidates[-1]
    # Each node has its own summary: the ranks' ends count in the order of their times.
    ends = [finding for finding in candidates if finding.observed_at]
    if candidates[0] in ends:
        return min(ends, key=lambda end: (end.observed_at, end.rule != "torchrun-root-cause"))
    return candidates[0]


def needs_evidence(findings: Sequence[Finding]) -> bool:
    """Return whether the findings name no error, but at most how a process ended."""
    main = select(findings)
    return main is None or main.level > Level.TIMEOUT or main.level is Level.CRASH


def program_continued(findings: Sequence[Finding]) -> bool:
    """Return whether a log continues after all its findings like that of a running program."""
    lines = 0
    for finding in reversed(findings):
        lines += finding.ordinary_lines
        if finding.level is not Level.WARNING:
            return lines > (_LINE_LINES if finding.level is Level.HINT else _ALIVE_LINES)
    return False


def last_group(findings: Sequence[Finding]) -> list[Finding]:
    """Return the last group of errors; the program survived the earlier ones.

    If it contains nothing that can be a cause, the group before it counts.
    """
    groups: list[list[Finding]] = [[]]
    lines = 0
    for finding in findings:
        if finding.level is not Level.WARNING:
            if groups[-1] and lines > _group_lines(groups[-1][-1]):
                groups.append([])
            groups[-1].append(finding)
            lines = 0
        lines += finding.ordinary_lines
    strong = [group for group in groups if any(each.level < Level.OUTCOME for each in group)]
    return (strong or [group for group in groups if group] or [[]])[-1]


def _weighed(findings: Sequence[Finding]) -> list[Finding]:
    """Return the last group, with levels changed where one finding explains another."""
    group = _without_survived([_without_step_end(each, findings) for each in last_group(findings)])
    group = _with_rank_ends(group)
    end = next((i for i, each in enumerate(group) if each.level is Level.ENDED), None)
    if end is None:
        return group
    lines = 0
    for index in range(end - 1, -1, -1):
        lines += group[index].ordinary_lines
        if lines > _ENDED_LINES and group[index].level in _ERRORS:
            group[index] = dataclasses.replace(group[index], level=Level.HINT)
    for index in range(end + 1, len(group)):
        if group[index].level in _ERRORS:
            group[index] = dataclasses.replace(group[index], level=Level.AFTER)
    return group


def _with_rank_ends(group: list[Finding]) -> list[Finding]:
    """Let the exit code of a rank count unless another finding explains it.

    What srun reports is then the exit code of torchrun, which is 1 for all failures.
    """
    ends = [finding for finding in group if finding.exit_code is not None]
    if not ends:
        return group
    others = [each for each in group if each.exit_code is None and each.rule not in _REPORTS]
    weighed = []
    for finding in group:
        if finding.rule in _REPORTS:
            finding = dataclasses.replace(finding, level=Level.HINT)
        elif finding.cause == "nonzero_exit" and finding in ends:
            # Python exits with 1 after any exception, and other codes are chosen.
            weakest = Level.AFTER if finding.exit_code == 1 else Level.TIMEOUT
            is_explained = any(
                (each.rank == finding.rank and each.level < Level.OUTCOME)
                or (each.rank is None and each.level <= weakest)
                for each in others
            )
            level = Level.OUTCOME if is_explained else Level.CRASH
            finding = dataclasses.replace(finding, level=level)
        weighed.append(finding)
    return weighed


def _without_survived(findings: list[Finding]) -> list[Finding]:
    """Make hints of errors after which the program continued until the traceback of another one.

    Programs report exceptions that they catch, because they do without something or try again.
    """
    weighed = list(findings)
    lines, has_traceback = 0, False
    for index in range(len(weighed) - 1, -1, -1):
        finding = weighed[index]
        lines += finding.ordinary_lines
        limit = _ENDED_LINES if finding.traceback else _LINE_LINES
        if has_traceback and lines > limit and finding.level in _ERRORS:
            weighed[index] = dataclasses.replace(finding, level=Level.HINT)
        elif finding.level is Level.ROOT and finding.traceback:
            lines, has_traceback = 0, True
    return weighed


def _without_step_end(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Make a hint of the end of a step if a task of it failed before (srun --kill-on-bad-exit)."""
    if finding.cause != "cancelled" or finding.level is not Level.ENDED:
        return finding
    job_ended = any(
        each.level is Level.ENDED and "*** JOB" in each.evidence.text for each in findings
    )
    task_failed = any(each.rule in _TASK_ENDS for each in findings[: findings.index(finding)])
    if job_ended or not task_failed:
        return finding
    return dataclasses.replace(finding, level=Level.HINT)


def _group_lines(finding: Finding) -> int:
    # After the end of the whole job, the log is that of its next start.
    return _ENDED_LINES if "*** JOB " in finding.evidence.text else GROUP_LINES

"""Finds the lines of a log that show a failure. Pure; keeps a bounded number of findings."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.diagnosis import (
    exit_codes,
    log_rules,
    main_finding,
    records,
    torchelastic,
    tracebacks,
)
from orchestrator.diagnosis.records import Level

#: Only the beginning of a longer line is matched, which bounds the time of a slow regex.
_MATCHED_CHARACTERS = 2048
_SHOWN_CHARACTERS = 500
#: Findings per file: the first and the last ones are kept.
_MAX_FINDINGS = 2000
#: Lines that belong to an error report. All other lines are the program's ordinary output.
_PART_OF_ERROR = re.compile(
    r"frame #\d+|={5,}|-{5,}|Killing subprocess \d+|Main process received SIGTERM|<omitting python"
    r"|The above exception was the direct cause|During handling of the above|  \[Previous line"
    # Threads of faulthandler, tables of GPU memory, frames of Open MPI.
    r'|  File "|Thread 0x|\||\[[\w.-]+:\d+\] \['
    r"|\[(?:E|W|I)\d{3,4} |[EWI]\d{4} \d\d:\d\d:\d\d|\s*$"
)
#: Signals with which torchrun and srun end the other ranks.
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
#: The data loader of PyTorch prints the worker's traceback after that of the main process.
_WORKER_TRACEBACK = "Original Traceback"
#: Python continues after an exception in __del__.
_IGNORED = "Exception ignored in"
#: torchrun --max-restarts starts all ranks again: the program survived the earlier errors.
_RESTART = "will restart worker group"
#: Words of programs that continue without something or try again. NCCL labels its errors WARN.
_BENIGN = re.compile(
    r"\b(?:WARN(?:ING)?|INFO|DEBUG|UserWarning|RuntimeWarning)\b|[Ww]arning:|^(?:I|W)\d{4} \d\d:"
    r"|: [IW] tensorflow/|\b[Rr]etry(?:ing)?\b|\b[Ii]gnor(?:ed|ing)\b|\b[Ss]kipp(?:ed|ing)\b"
    r"|\b[Tt]rying (?:again|batch)|\b[Ff]all(?:ing)? back|thrown while requesting"
)
_ERROR = re.compile(r"NCCL WARN|\bERROR\b|\bFATAL\b|^(?:slurmstepd|srun): ")
#: PyTorch logs connections that it closes itself as glog warnings.
_GLOG_WARNING = re.compile(r"\[W\d{3,4} |\[W socket")
#: Exceptions that only show that the process was told to end or that another process failed.
_CONSEQUENCES = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "BrokenPipeError"})

# Prefixes of launchers, in the order in which they are stacked:
#   "3: "            srun --label (the task; the rank if each rank is a task)
#   "[default3]:"    torchrun --tee (the local rank)
#   "[1,3]<stderr>:" mpirun --tag-output (job, rank)
#   "(Worker pid=7, ip=10.0.0.1) " Ray (an actor or a task)
#   "[rank3]:"       PyTorch 2.2 and later, in warnings and tracebacks (the rank)
# A log collector may put a time before them.
_PREFIXES = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,Z+:]{0,16}\]?[ |]{1,3}(?=\[))?"
    r"(?P<stream>(?:\s*(?:"
    r"(?P<task>\d{1,6}): ?"
    r"|\[(?:default|worker|trainer)_?(?P<local>\d{1,6})\]: ?"
    r"|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err|diag)>: ?"
    r"|\([A-Za-z_][\w.]{0,80}(?:\([^()]{0,80}\))? pid=\d{1,9}(?:, ip=[\d.]{1,20})?\) "
    r"|\[rank(?P<rank>\d{1,6})\]:(?: |(?=\S)|$)"
    r")){1,3})"
)
#: "[PG ID 0 PG GUID 0(default_pg) Rank 3]", "[Rank 3]" (ProcessGroupNCCL.cpp)
_RANK_IN_MESSAGE = re.compile(r"\[(?:PG [^\]]{0,80} )?Rank (\d{1,6})\]")


class Unprefixed(NamedTuple):
    """A line without its launcher's prefix."""

    text: str
    #: the prefix, which identifies the process; "": no prefix
    stream: str
    #: the global rank (PyTorch, MPI), else the task or the local rank; None: unknown
    rank: int | None


def strip_prefix(line: str) -> Unprefixed:
    """Remove the prefix of a launcher from a line; the indentation of the line stays."""
    prefixes = _PREFIXES.match(line) if ":" in line[:48] or line[:1] == "(" else None
    if prefixes is None:
        return Unprefixed(line, "", None)
    ranks = (prefixes[name] for name in ("rank", "mpi", "local", "task"))
    rank = next((int(number) for number in ranks if number is not None), None)
    return Unprefixed(line[prefixes.end() :], prefixes["stream"].strip(), rank)


class LogReader:
    """Collects the findings of one log file, whose lines are passed in order."""

    def __init__(self, rules: log_rules.Rules, path: str) -> None:
        self._rules = rules
        self._path = path
        self._tracebacks = tracebacks.Tracebacks(path)
        self._findings: list[records.Finding] = []
        self._ordinary_lines = 0
        #: stream -> index of the finding of its last traceback
        self._last_traceback: dict[str, int] = {}
        #: streams whose next traceback is chained to the last one
        self._chained: set[str] = set()
        #: streams whose next traceback is one that Python ignores
        self._ignored: set[str] = set()
        #: stream -> torchrun's summary of failed ranks while it is being read
        self._summaries: dict[str, torchelastic.Summary] = {}
        #: path of each error file that torchrun names -> rank
        self.error_files: dict[str, int | None] = {}
        self._last_lines: deque[tuple[int, str]] = deque(maxlen=records.LAST_LINES)

    @property
    def last_lines(self) -> tuple[records.Evidence, ...]:
        """Return the last lines that were read and are not blank."""
        return tuple(self._evidence(*line) for line in self._last_lines)

    def finish(self) -> tuple[records.Finding, ...]:
        """Return the findings in the order of the file, after its last line."""
        for stream in [*self._summaries]:
            self._end_summary(stream)
        self._count_ordinary_lines()
        return tuple(self._findings)

    def feed(self, number: int, line: str) -> None:
        if line and not line.isspace():
            self._last_lines.append((number, line))
        is_inside = self._tracebacks.pending or self._summaries
        if not (is_inside or self._rules.may_match(line)):
            self._ordinary_lines += bool(self._findings) and not _PART_OF_ERROR.match(line)
            return
        text, stream, rank = strip_prefix(line[:_MATCHED_CHARACTERS])
        if text.startswith(_WORKER_TRACEBACK):
            self._chained.add(stream)
        if self._read_summary(number, text, stream):
            return
        is_traceback, traceback = self._tracebacks.add(
            text, number=number, stream=stream, rank=rank
        )
        if traceback is not None:
            self._add_traceback(traceback, text, line, stream)
        elif is_traceback:
            pass
        elif text.startswith(_CHAINED):
            self._chained.add(stream)
        elif text.startswith(_IGNORED):
            self._ignored.add(stream)
        elif _RESTART in text:
            self._ordinary_lines += main_finding.GROUP_LINES + 1
        elif (match := self._rules.match(text)) is None:
            self._ordinary_lines += not _PART_OF_ERROR.match(text)
        else:
            finding = _finding(*match, text, self._evidence(number, line), rank)
            level = _level(finding.level, text)
            self._add(dataclasses.replace(finding, level=level))

    def _add_traceback(
        self, traceback: records.Traceback, text: str, line: str, stream: str
    ) -> None:
        exception = log_rules.Rule(name="traceback", cause="python_exception")
        if traceback.exception.rpartition(".")[2] in _CONSEQUENCES:
            exception = dataclasses.replace(exception, cause="killed", level="outcome")
        rule, groups = self._rules.match(text) or (exception, {})
        if rule.level == "hint":
            rule, groups = exception, {}
        evidence = self._evidence(traceback.last_line, line)
        finding = _finding(rule, groups, text, evidence, traceback.rank)
        finding = dataclasses.replace(finding, traceback=traceback)
        if rule is exception:
            finding = dataclasses.replace(finding, summary=_summary(traceback))
        if stream in self._ignored:
            self._ignored.discard(stream)
            finding = dataclasses.replace(finding, level=Level.WARNING)
        earlier = self._last_traceback.get(stream)
        if stream in self._chained and earlier is not None:
            self._chained.discard(stream)
            self._replace_chained(earlier, finding)
            return
        self._add(finding)
        self._last_traceback[stream] = len(self._findings) - 1

    def _replace_chained(self, index: int, finding: records.Finding) -> None:
        """Keep one finding of two chained exceptions.

        The last exception ended the program, but an earlier one that a rule knows says more.
        """
        earlier = self._findings[index]
        is_known = earlier.rule != "traceback" and earlier.level <= Level.TIMEOUT
        if finding.rule == "traceback" and is_known:
            return
        self._findings[index] = finding
        self._ordinary_lines = 0

    def _read_summary(self, number: int, text: str, stream: str) -> bool:
        """Read a line of torchrun's summary; return whether it belongs to one."""
        summary = self._summaries.get(stream)
        if summary is None:
            if not torchelastic.is_heading(text):
                return False
            summary = self._summaries[stream] = torchelastic.Summary()
        belongs = summary.feed(number, text)
        if summary.ended:
            self._end_summary(stream)
        return belongs

    def _end_summary(self, stream: str) -> None:
        failures = self._summaries.pop(stream).failures
        for failure in sorted(failures, key=lambda failure: not failure.is_root):
            if failure.error_file:
                self.error_files.setdefault(failure.error_file, failure.rank)
            self._add_traceback_of(failure)
            # torchrun itself ends the ranks that are left.
            if failure.is_root or failure.exit_code not in (0, -signal.SIGTERM):
                self._add(self._rank_end(failure))

    def _add_traceback_of(self, failure: torchelastic.Failure) -> None:
        """Add the traceback of an error file unless the log has it already."""
        lines = tracebacks.Tracebacks(self._path)
        for number, text in failure.traceback:
            _, traceback = lines.add(text, number=number, stream="", rank=failure.rank)
            if traceback is None or any(
                (each.traceback.exception, each.traceback.message)
                == (traceback.exception, traceback.message)
                for each in self._findings
                if each.traceback is not None
            ):
                continue
            self._add_traceback(traceback, text, text, f"summary of rank {failure.rank}")

    def _rank_end(self, failure: torchelastic.Failure) -> records.Finding:
        code, rank = failure.exit_code, failure.rank
        cause, how = exit_codes.of_rank(code)
        level = Level.CRASH
        if -code in _ENDING_SIGNALS or (cause == "nonzero_exit" and code == 1):
            # Python's code for every exception.
            level = Level.OUTCOME
        elif cause in ("nonzero_exit", "missing_program", "aborted"):
            # A watchdog aborts its own rank because of another one.
            level = Level.AFTER
        is_signal = failure.fields.get("traceback", "").startswith("Signal")
        keys = ("rank", "exitcode", "traceback") if is_signal else ("rank", "exitcode")
        shown = ", ".join(f"{key} {failure.fields[key]}" for key in keys if key in failure.fields)
        heading = torchelastic.ROOT if failure.is_root else "Failures"
        where = f" on {failure.host}" if failure.host else ""
        first = ", the first failure that torchrun observed" if failure.is_root else ""
        return records.Finding(
            cause=cause,
            rule="torchrun-root-cause" if failure.is_root else "torchrun-failure",
            evidence=self._evidence(failure.line, f"{heading}: {shown}"),
            rank=rank,
            summary=f"rank {'?' if rank is None else rank}{where} {how}{first}",
            level=level,
            exit_code=code,
            observed_at=failure.observed_at,
        )

    def _add(self, finding: records.Finding) -> None:
        self._count_ordinary_lines()
        self._ordinary_lines = 0
        if len(self._findings) >= _MAX_FINDINGS:
            del self._findings[_MAX_FINDINGS // 2]
            self._last_traceback.clear()
        self._findings.append(finding)

    def _count_ordinary_lines(self) -> None:
        if self._findings:
            last = self._findings[-1]
            self._findings[-1] = dataclasses.replace(last, ordinary_lines=self._ordinary_lines)

    def _evidence(self, number: int, line: str) -> records.Evidence:
        text = line.strip()
        if len(text) > _SHOWN_CHARACTERS:
            text = text[: _SHOWN_CHARACTERS - 3] + "..."
        return records.Evidence(path=self._path, line=number, text=text, source=records.Source.LOG)


def _finding(
    rule: log_rules.Rule,
    groups: Mapping[str, str],
    text: str,
    evidence: records.Evidence,
    rank: int | None,
) -> records.Finding:
    """Return what a line shows; `rank` is that of its prefix."""
    named = _RANK_IN_MESSAGE.search(text)
    number = groups.get("rank") or (named and named[1])
    return records.Finding(
        cause=rule.cause,
        rule=rule.name,
        evidence=evidence,
        rank=int(number) if number else rank,
        summary=rule.summary(groups),
        cures=rule.cures,
        level=log_rules.LEVELS[rule.level],
    )


def _level(level: Level, text: str) -> Level:
    """Return the level of a line: that of its rule, unless the line calls itself a warning."""
    if _GLOG_WARNING.match(text) and level is Level.AFTER:
        return Level.WARNING
    is_own = level in (Level.ROOT, Level.CRASH, Level.TIMEOUT, Level.HINT)
    is_warning = is_own and _BENIGN.search(text) and not _ERROR.search(text)
    return Level.WARNING if is_warning else level


def _summary(traceback: records.Traceback) -> str:
    name = traceback.exception.rpartition(".")[2]
    frame = traceback.own_frame
    where = f" in {frame.path}, line {frame.line}" if frame else ""
    message = f": {traceback.message[:200]}" if traceback.message else ""
    return f"{name}{where}{message}"

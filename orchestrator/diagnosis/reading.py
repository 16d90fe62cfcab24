"""Lines of a job's logs -> findings. Pure; holds a bounded number of them."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Mapping

from orchestrator.diagnosis import choosing, kinds, prefixes, records, rules, tracebacks
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Level

#: Longer lines are cut for matching; it bounds what a slow regex can cost.
_MATCH_CHARACTERS = 2048
_SHOWN_CHARACTERS = 500
#: Findings kept of one file: the first ones and the last ones.
_KEPT_FINDINGS = 2000
#: What belongs to an error and is no line of the training itself.
_AROUND = re.compile(
    r"frame #\d+|={5,}|-{5,}|Killing subprocess \d+|Main process received SIGTERM|<omitting python"
    r"|The above exception was the direct cause|During handling of the above|  \[Previous line"
    # faulthandler's threads, tables of a GPU's memory, Open MPI's frames.
    r'|  File "|Thread 0x|\||\[[\w.-]+:\d+\] \['
    r"|\[(?:E|W|I)\d{3,4} |[EWI]\d{4} \d\d:\d\d:\d\d|\s*$"
)
_ROOT_CAUSE = "Root Cause (first observed failure)"
_FIELD = re.compile(r"\s{1,8}(?P<key>\w+) {0,10}: (?P<value>.*)")
_EXIT_CODE = re.compile(r"(-?\d+)")
_CHAINED = "During handling of the above exception"
#: PyTorch's data loader prints the worker's own traceback behind the one of the main process.
_ORIGINAL = "Original Traceback"
_DIRECT = "The above exception was the direct cause"
#: Python goes on after these: what __del__ raises while it ends.
_IGNORED = "Exception ignored in"
#: torchrun starts all ranks anew (--max-restarts): what was before was lived through.
_RESTART = "will restart worker group"
#: What a program says of what it does without, or tries again. NCCL calls its errors WARN.
_BENIGN = re.compile(
    r"\b(?:WARN(?:ING)?|INFO|DEBUG|UserWarning|RuntimeWarning)\b|[Ww]arning:|^(?:I|W)\d{4} \d\d:"
    r"|: [IW] tensorflow/|\b[Rr]etry(?:ing)?\b|\b[Ii]gnor(?:ed|ing)\b|\b[Ss]kipp(?:ed|ing)\b"
    r"|\b[Tt]rying (?:again|batch)|\b[Ff]all(?:ing)? back|thrown while requesting"
)
#: glog's letter: PyTorch warns so of connections that it ends.
_GLOG_WARNING = re.compile(r"\[W\d{3,4} |\[W socket")
_ERROR = re.compile(r"NCCL WARN|\bERROR\b|\bFATAL\b|^(?:slurmstepd|srun): ")
#: Exceptions that only say that the process was told to end, or that another one failed.
_FOLLOWING = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "BrokenPipeError"})
_SIGNALS: Mapping[int, Cause] = {
    signal.SIGKILL: Cause.KILLED,
    signal.SIGSEGV: Cause.SEGFAULT,
    signal.SIGBUS: Cause.SHARED_MEMORY,
    signal.SIGABRT: Cause.ABORTED,
    signal.SIGILL: Cause.ILLEGAL_INSTRUCTION,
}


class Reader:
    """Finds what tells of a failure in the lines of one file, fed in their order."""

    def __init__(self, known: rules.Rules, path: str) -> None:
        self._rules = known
        self._path = path
        self._tracebacks = tracebacks.Tracebacks(path)
        self._findings: list[records.Finding] = []
        self._dropped = 0
        self._quiet = 0
        #: stream -> the traceback that a chained one may follow, and its finding's place
        self._closed: dict[str, int] = {}
        self._chained: set[str] = set()
        #: streams whose next traceback is of what Python ignores
        self._ignored: set[str] = set()
        self._summary: dict[str, str] | None = None
        self._summary_line = 0
        self._last: tuple[int, str] | None = None

    @property
    def last(self) -> records.Evidence | None:
        """Return the last line with something on it."""
        return None if self._last is None else self._evidence(*self._last)

    @property
    def _busy(self) -> bool:
        return self._tracebacks.pending or self._summary is not None

    @property
    def findings(self) -> tuple[records.Finding, ...]:
        """Return what was found, in the file's order."""
        if self._summary:
            self._end_summary()
        found = list(self._findings)
        if found:
            found[-1] = dataclasses.replace(found[-1], quiet_lines=self._quiet)
        return tuple(found)

    def feed(self, number: int, line: str) -> None:
        """Take the next line."""
        self._last = number, line
        if not (self._busy or self._rules.may_match(line)):
            # Nearly all lines.
            self._quiet += bool(self._findings) and not _AROUND.match(line)
            return
        text, stream, rank = prefixes.strip(line[:_MATCH_CHARACTERS])
        if text.startswith(_ORIGINAL):
            self._chained.add(stream)
        if self._summary is not None and self._in_summary(text):
            return
        own, ended = self._tracebacks.add(text, number=number, stream=stream, rank=rank)
        if ended is not None:
            self._add_traceback(ended, text, line, stream)
            return
        if own:
            return
        if _ROOT_CAUSE in text:
            self._summary, self._summary_line = {}, number
            return
        if text.startswith((_CHAINED, _DIRECT)):
            self._chained.add(stream)
            return
        if text.startswith(_IGNORED):
            self._ignored.add(stream)
            return
        if _RESTART in text:
            self._quiet += choosing.BOUT_LINES + 1
            return
        matched = self._rules.match(text)
        if matched is None:
            self._quiet += not _AROUND.match(text)
            return
        rule, groups = matched
        self._add(
            records.Finding(
                cause=rule.cause,
                rule=rule.name,
                evidence=self._evidence(number, line),
                rank=_rank(rank, groups, text),
                summary=rule.summary(groups),
                cures=rule.cures,
                level=_level_of(rule, text),
            )
        )

    def _add_traceback(self, ended: records.Traceback, text: str, line: str, stream: str) -> None:
        matched = self._rules.match(text)
        if matched is not None and matched[0].level is Level.HINT:
            matched = None
        level, rule_name, cause = Level.ROOT, "traceback", Cause.PYTHON_EXCEPTION
        summary = _told(ended)
        cures: tuple[str, ...] = ()
        groups: Mapping[str, str] = {}
        if matched is not None:
            rule, groups = matched
            level, rule_name, cause = rule.level, rule.name, rule.cause
            summary, cures = rule.summary(groups), rule.cures
        elif ended.exception.rpartition(".")[2] in _FOLLOWING:
            level, cause = Level.OUTCOME, Cause.KILLED
        if stream in self._ignored:
            self._ignored.discard(stream)
            level = Level.WARNING
        finding = records.Finding(
            cause=cause,
            rule=rule_name,
            evidence=self._evidence(ended.last_line, line),
            rank=_rank(ended.rank, groups, text),
            summary=summary,
            cures=cures,
            level=level,
            traceback=ended,
        )
        before = self._closed.get(stream)
        if stream in self._chained and before is not None:
            self._chained.discard(stream)
            self._chain(before, finding)
            return
        self._add(finding)
        self._closed[stream] = len(self._findings) - 1

    def _chain(self, before: int, finding: records.Finding) -> None:
        """Let a chained exception stand for both, or the earlier where it says more.

        The last exception is the one that ended the program. What a rule knows of the one that
        brought it about says more than that it was an exception.
        """
        if before >= len(self._findings):
            self._add(finding)
            return
        earlier = self._findings[before]
        known = earlier.rule != "traceback" and earlier.level <= Level.TIMEOUT
        if finding.rule == "traceback" and known:
            return
        # In the earlier one's place: what came first is told by where the chain began.
        self._findings[before] = dataclasses.replace(finding, order=earlier.order)
        self._quiet = 0

    def _in_summary(self, text: str) -> bool:
        """Take a line of torchrun's summary of the first failure; whether it was one."""
        assert self._summary is not None
        field = _FIELD.match(text)
        if field:
            self._summary.setdefault(field["key"], field["value"].strip())
            return True
        if text[:1] in ("[", " "):
            # The number of the failure; with @record, its traceback, which stands above as well.
            return True
        self._end_summary()
        return False

    def _end_summary(self) -> None:
        told, self._summary = self._summary or {}, None
        code = _EXIT_CODE.match(told.get("exitcode", ""))
        rank = _EXIT_CODE.match(told.get("rank", ""))
        number = int(code[1]) if code else 1
        cause = _SIGNALS.get(-number, Cause.NONZERO_EXIT)
        where = f" on {told['host']}" if told.get("host") else ""
        names = ("rank", "exitcode", "traceback")
        shown = [f"{name} {told[name]}" for name in names if name in told]
        if not told.get("traceback", "").startswith("Signal"):
            shown = shown[:2]
        who = f"rank {rank[1] if rank else '?'} failed first{where}"
        self._add(
            records.Finding(
                cause=cause,
                rule="torchrun-root-cause",
                evidence=records.Evidence(
                    path=self._path,
                    line=self._summary_line,
                    text=f"{_ROOT_CAUSE}: {', '.join(shown)}",
                    source=records.Source.LOG,
                ),
                rank=int(rank[1]) if rank else None,
                summary=f"{kinds.kind_of(cause).title}: {who}",
                level=_level(cause),
            )
        )

    def _add(self, finding: records.Finding) -> None:
        found = self._findings
        if found:
            found[-1] = dataclasses.replace(found[-1], quiet_lines=self._quiet)
        self._quiet = 0
        if len(found) >= _KEPT_FINDINGS:
            # The middle of an avalanche tells nothing that its beginning and its end do not.
            del found[_KEPT_FINDINGS // 2]
            self._dropped += 1
            self._closed.clear()
        found.append(dataclasses.replace(finding, order=len(found) + self._dropped))

    def _evidence(self, number: int, line: str) -> records.Evidence:
        text = line.strip()
        if len(text) > _SHOWN_CHARACTERS:
            text = text[: _SHOWN_CHARACTERS - 3] + "..."
        return records.Evidence(path=self._path, line=number, text=text, source=records.Source.LOG)


def read(known: rules.Rules, path: str, numbered: Iterable[tuple[int, str]]) -> Reader:
    """Read all lines of a file."""
    reader = Reader(known, path)
    for number, line in numbered:
        reader.feed(number, line)
    return reader


def _rank(rank: int | None, groups: Mapping[str, str], text: str) -> int | None:
    if groups.get("rank"):
        return int(groups["rank"])
    inside = prefixes.rank_inside(text)
    return inside if inside is not None else rank


def _level_of(rule: rules.Rule, text: str) -> Level:
    """Return what a line weighs: of one that calls itself a warning, no job fails."""
    if _GLOG_WARNING.match(text) and rule.level is Level.AFTER:
        return Level.WARNING
    own = rule.level in (Level.ROOT, Level.CRASH, Level.TIMEOUT, Level.HINT)
    if own and _BENIGN.search(text) and not _ERROR.search(text):
        return Level.WARNING
    return rule.level


def _level(cause: Cause) -> Level:
    """Return what torchrun's word weighs: a watchdog aborts its own rank, others kill."""
    if cause is Cause.NONZERO_EXIT:
        return Level.OUTCOME
    return Level.AFTER if cause is Cause.ABORTED else Level.CRASH


def _told(ended: records.Traceback) -> str:
    name = ended.exception.rpartition(".")[2]
    frame = ended.own_frame
    where = f" in {frame.path}, line {frame.line}" if frame else ""
    message = ended.message[:200]
    return f"{name}{where}: {message}" if message else f"{name}{where}"

"""The facts about a job's end, the findings in its logs, and the explanation."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from orchestrator import jobs
from orchestrator.diagnosis import causes

#: Lines from the end of a log that are shown if nothing in it matches a rule.
LAST_LINES = 3


class Source(enum.StrEnum):
    LOG = "log"
    #: state, reason, exit code
    SLURM = "slurm"
    #: the database
    OURS = "orchestrator"


class Level(enum.IntEnum):
    """How strong a finding is: the lowest level is the cause; within a level, the first one."""

    #: the kernel or Slurm reports what it did
    DECISIVE = 0
    #: an error of the program itself
    ROOT = 1
    #: a process was killed by a signal from outside
    CRASH = 2
    #: a rank waited in vain for another one
    TIMEOUT = 3
    #: Slurm ended the job; earlier errors are stronger, later ones weaker
    ENDED = 4
    #: a consequence of the end of another process
    AFTER = 5
    #: reports a failure without its cause
    OUTCOME = 6
    #: looks like an error; counts only if there is nothing else
    HINT = 7
    #: no error
    WARNING = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    text: str
    source: Source
    #: None: not from a file
    path: str | None = None
    #: counted from 1
    line: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    path: str
    line: int
    code: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traceback:
    """A Python traceback of one process in a log."""

    path: str
    #: line number of `Traceback (most recent call last):`
    first_line: int
    #: line number of the exception
    last_line: int
    #: with its module if printed: "torch.OutOfMemoryError"
    exception: str
    message: str
    frames: tuple[Frame, ...] = ()
    rank: int | None = None
    #: the text without launcher prefixes
    lines: tuple[str, ...] = ()

    @property
    def own_frame(self) -> Frame | None:
        """Return the innermost frame that is not in an installed package."""
        return next((frame for frame in reversed(self.frames) if not _is_installed(frame)), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What one line of a log, or the final state, shows about a failure."""

    cause: causes.Cause
    #: name of the rule that matched
    rule: str
    evidence: Evidence
    rank: int | None = None
    #: one sentence; "": the title of the cause
    summary: str = ""
    #: fixes that come before those of the cause
    cures: tuple[str, ...] = ()
    level: Level = Level.ROOT
    #: lines of ordinary output between this finding and the next one
    ordinary_lines: int = 0
    traceback: Traceback | None = None
    #: of a rank, as its launcher reports it; negative: the signal that ended it. None: unknown
    exit_code: int | None = None
    #: time of the failure by the launcher's clock, which sorts as text; "": unknown
    observed_at: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobFacts:
    #: None for `explain --log`
    job: jobs.Job | None = None
    #: `job` describes an earlier attempt
    is_earlier_attempt: bool = False
    attempts: tuple[jobs.Attempt, ...] = ()
    events: tuple[jobs.JobEvent, ...] = ()
    #: the user who runs this program
    user: str = ""
    #: the user who cancelled the job, "user 2001" if this host does not know the name; None: not
    #: cancelled, or Slurm does not report by whom
    cancelled_by: str | None = None
    #: whether the job script has started, from the run folder; None: unknown
    script_started: bool | None = None
    #: in the order of the logs
    findings: tuple[Finding, ...] = ()
    #: the last lines of the log that are not blank, without the banner of our script
    last_lines: tuple[Evidence, ...] = ()
    #: time of the last write to a log
    written_at: datetime.datetime | None = None
    #: in the middle of long logs, which is not read
    skipped_bytes: int = 0
    #: skipped bytes whose lines were not counted, so that later line numbers are too low
    uncounted_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    #: None: the job has not failed
    cause: causes.Cause | None
    #: one sentence
    summary: str
    #: strongest first
    evidence: tuple[Evidence, ...] = ()
    cures: tuple[str, ...] = ()
    first_failing_rank: int | None = None
    traceback: Traceback | None = None
    #: further facts by name
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)
    #: other findings
    also: tuple[Finding, ...] = ()


def _is_installed(frame: Frame) -> bool:
    parts = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python")
    return frame.path.startswith("<") or any(part in frame.path for part in parts)

"""What a diagnosis is made from, and what it says."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping

from orchestrator import jobs
from orchestrator.diagnosis import causes


class Source(enum.StrEnum):
    """Who tells a piece of evidence."""

    LOG = "log"
    #: state, reason, steps, events
    SLURM = "slurm"
    #: the script's own exit record
    RECORD = "record"
    #: our own: the history, GPU figures, the spec
    OURS = "orchestrator"


class Level(enum.IntEnum):
    """How much a finding weighs: of those found the lowest level counts, and in it the first."""

    #: the kernel or Slurm says what it did
    DECISIVE = 0
    #: an error of the program's own
    ROOT = 1
    #: a process was ended by a signal that its own program did not send
    CRASH = 2
    #: a rank waited for another one in vain
    TIMEOUT = 3
    #: Slurm ended it; what went wrong before weighs more, whatever came after less
    ENDED = 4
    #: follows from the end of another process
    AFTER = 5
    #: tells that something failed, and not what
    OUTCOME = 6
    #: looks like an error
    HINT = 7
    #: no error
    WARNING = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Where something can be read that tells the cause."""

    text: str
    source: Source
    #: file; none: it stands in no file
    path: str | None = None
    #: from 1
    line: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """One call of a traceback."""

    path: str
    line: int
    function: str
    code: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traceback:
    """A Python traceback as it stands in a log, without the other ranks' lines."""

    path: str
    #: of `Traceback (most recent call last):`
    first_line: int
    #: of the exception
    last_line: int
    #: with its module where it was printed with it: "torch.OutOfMemoryError"
    exception: str
    message: str
    frames: tuple[Frame, ...] = ()
    rank: int | None = None
    #: as printed, without prefixes
    lines: tuple[str, ...] = ()

    @property
    def own_frame(self) -> Frame | None:
        """Return the innermost frame of the user's own code: not of an installed package."""
        return next((frame for frame in reversed(self.frames) if not _is_installed(frame)), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What one line of a log (or an error file) says of a failure."""

    cause: causes.Cause
    #: name of the rule that found it
    rule: str
    evidence: Evidence
    rank: int | None = None
    #: one plain sentence with what the line names; "": the cause's title
    summary: str = ""
    #: cures of this rule, before those of the cause
    cures: tuple[str, ...] = ()
    level: Level = Level.ROOT
    #: place in the job's logs taken together, for what came first
    order: int = 0
    #: lines behind it, up to the next finding, that are no part of an error
    quiet_lines: int = 0
    traceback: Traceback | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canceller:
    """Who cancelled a job, as Slurm tells it: `CANCELLED by 2001`."""

    user_id: int
    #: the user ID in words where this host knows no name for it
    name: str
    is_me: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known of a job's end."""

    #: none: `explain --log`, a log from anywhere
    job: jobs.Job | None = None
    #: the job as it was in an earlier attempt
    past: bool = False
    attempts: tuple[jobs.Attempt, ...] = ()
    events: tuple[jobs.JobEvent, ...] = ()
    #: none: it was not cancelled, or Slurm does not tell by whom
    canceller: Canceller | None = None
    #: the script has begun, as its claim in the run folder tells; none: not looked at
    began: bool | None = None
    #: in the logs' order
    findings: tuple[Finding, ...] = ()
    #: the log's last line that says something
    last_line: Evidence | None = None
    #: when something was last written to a log
    written_at: datetime.datetime | None = None
    #: what holds for a job of so many ranks that did not fail
    advice: tuple[str, ...] = ()
    #: of the logs' middles, which were not read
    skipped_bytes: int = 0
    #: bytes of these whose lines were not counted: the numbers of later lines are too low
    uncounted_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a job failed, waits or runs, what tells it, and what to do."""

    #: none: it did not fail
    cause: causes.Cause | None
    #: one plain sentence
    summary: str
    #: the most telling first
    evidence: tuple[Evidence, ...] = ()
    cures: tuple[str, ...] = ()
    first_failing_rank: int | None = None
    traceback: Traceback | None = None
    #: name -> value, more to know
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)
    #: what else was found, and weighs less
    also: tuple[Finding, ...] = ()


def _is_installed(frame: Frame) -> bool:
    parts = ("/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python")
    return frame.path.startswith("<") or any(part in frame.path for part in parts)

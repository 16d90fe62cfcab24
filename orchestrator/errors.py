"""Every error a user can meet, in one tree; the docstring is the message when none is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

#: Of the line as it was written: a file need not have line ends.
_SHOWN_CHARACTERS = 500
_SHOWN_PROBLEMS = 200


class OrchestratorError(Exception):
    """The work failed."""

    #: What the process ends with (design section 5).
    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a spec or a configuration."""

    #: Where it was written: a file, `--set`, a flag or a variable.
    source: str
    #: Line in the file, where it is known.
    line: int | None = None
    #: Dotted key, `resources.nodes`.
    key: str = ""
    #: What is wrong and what would be right.
    message: str
    #: The line as it was written, shown below the message.
    text: str = ""

    def __str__(self) -> str:
        """Return `FILE:LINE: KEY: MESSAGE`, with the written line below where there is one."""
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        head = ": ".join(part for part in (where, self.key, self.message) if part)
        if not self.text or self.line is None:
            return head
        text = self.text.strip()
        if len(text) > _SHOWN_CHARACTERS:
            text = text[: _SHOWN_CHARACTERS - 3] + "..."
        return f"{head}\n    {self.line} | {text}"


class ProblemsError(OrchestratorError):
    """Several problems, all told at once."""

    #: How the closing count ends: "2 problems; nothing submitted."
    consequence = ""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem" + ("" if len(self.problems) == 1 else "s")
        tail = f"{count}; {self.consequence}." if self.consequence else f"{count}."
        shown = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > len(shown):
            shown.append(f"... and {len(self.problems) - len(shown)} more")
        super().__init__("\n".join([*shown, tail]))


class SpecError(ProblemsError):
    """The job spec is wrong."""

    exit_code = 3
    consequence = "nothing was submitted"


class ConfigurationError(ProblemsError):
    """The configuration is wrong."""

    exit_code = 3
    consequence = "nothing was done"


class TemplateError(OrchestratorError):
    """A template cannot be rendered."""

    exit_code = 3


class NotFoundError(OrchestratorError):
    """There is no such job."""

    exit_code = 4


class NotEndedError(OrchestratorError):
    """The time given with --timeout is up, and not all jobs have ended."""

    # As timeout(1) of coreutils does: a script can tell it from a job that failed.
    exit_code = 124


class SlurmError(OrchestratorError):
    """Slurm failed, or its answer is not known."""

    exit_code = 5


class ConflictError(OrchestratorError):
    """What was asked for conflicts with what is there."""

    exit_code = 6


class FencedError(ConflictError):
    """Another controller acts now; what this one was about to do is left to it."""


class DatabaseError(OrchestratorError):
    """The database cannot be used."""


class DamagedRowError(DatabaseError):
    """A row of the database is damaged."""


class NewerDatabaseError(ConflictError):
    """The database was written by a newer version of orchestrator."""


class RunFolderError(OrchestratorError):
    """The run folder cannot be written."""

"""All errors that users see. The docstring is the default message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

#: How to examine a damaged database.
CHECK_DATABASE = "`orchestrator db check` lists what is damaged"
_SHOWN_CHARACTERS = 500
_SHOWN_PROBLEMS = 200


class OrchestratorError(Exception):
    """The command failed."""

    #: exit code of the process
    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem in a spec or a configuration."""

    #: a file, `--set`, a flag or a variable
    source: str
    line: int | None = None
    #: dotted key, `resources.nodes`
    key: str = ""
    #: what is wrong, and what is allowed
    message: str
    #: the line in the file, shown below the message
    text: str = ""

    def __str__(self) -> str:
        """Return `FILE:LINE: KEY: MESSAGE`, followed by the line of the file."""
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        head = ": ".join(part for part in (where, self.key, self.message) if part)
        if not self.text or self.line is None:
            return head
        text = self.text.strip()
        if len(text) > _SHOWN_CHARACTERS:
            text = text[: _SHOWN_CHARACTERS - 3] + "..."
        return f"{head}\n    {self.line} | {text}"


class ProblemsError(OrchestratorError):
    """Several problems, reported together."""

    #: end of the last line: "2 problems; nothing was submitted."
    consequence = ""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem" + ("" if len(self.problems) == 1 else "s")
        tail = f"{count}; {self.consequence}." if self.consequence else f"{count}."
        shown = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > len(shown):
            shown.append(f"... and {len(self.problems) - len(shown)} more")
        super().__init__("\n".join([*shown, tail]))


class RequestError(OrchestratorError):
    """The request is incomplete, or contradicts itself."""

    # The command line reports it as it reports a wrong option.
    exit_code = 2


class SpecError(ProblemsError):
    """The job spec has problems."""

    exit_code = 3
    consequence = "nothing was submitted"


class ConfigurationError(ProblemsError):
    """The configuration has problems."""

    exit_code = 3
    consequence = "nothing was done"


class TemplateError(OrchestratorError):
    """A template cannot be rendered."""

    exit_code = 3


class NotFoundError(OrchestratorError):
    """The job was not found."""

    exit_code = 4


class JobFailedError(OrchestratorError):
    """A job did not complete."""


class NotEndedError(OrchestratorError):
    """Not all jobs have ended before the --timeout."""

    # As for timeout(1): scripts can distinguish it from a failed job.
    exit_code = 124


class SlurmError(OrchestratorError):
    """Slurm failed, or did not answer."""

    exit_code = 5


class ConflictError(OrchestratorError):
    """The request conflicts with the present state."""

    exit_code = 6


class FencedError(ConflictError):
    """Another controller has taken the lease over."""


class DatabaseError(OrchestratorError):
    """The database cannot be used."""


class DatabaseLockedError(DatabaseError):
    """Another process has locked the database for too long."""


class DatabaseNotWritableError(DatabaseError):
    """The database or its folder is read-only, or the disk is full."""


class DamageError(DatabaseError):
    """The file is not a database, or a damaged one."""

    def __init__(self, message: str, *, problem: str = "") -> None:
        """`problem`: what is damaged, without the fix."""
        super().__init__(message)
        self.problem = problem or message


class DamagedRowError(DamageError):
    """A row of the database is damaged."""


class NewerDatabaseError(ConflictError):
    """The database was written by a newer version of orchestrator."""


class RunFolderError(OrchestratorError):
    """The run folder cannot be written."""

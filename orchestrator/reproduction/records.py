"""What is compared of jobs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from orchestrator import environments, jobs

Section = Literal["spec", "arguments", "code", "environment", "results"]
#: Characters of a commit or tree ID that are shown.
ID_CHARACTERS = 12
_DIGEST_CHARACTERS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeVersion:
    """The code that a job ran, as far as it is recorded."""

    #: tree ID of its snapshot; None: it ran what was in the folder
    tree: str | None = None
    commit: str | None = None
    #: None: HEAD was a commit
    branch: str | None = None
    #: uncommitted changes of tracked files, as a diff
    diff: str = ""
    #: changed tracked files or untracked files; None: unknown
    is_dirty: bool | None = None
    is_diff_cut: bool = False

    @classmethod
    def of(cls, code: jobs.Code, provenance: Mapping[str, Any]) -> CodeVersion:
        """Return the version from a job's spec and provenance."""
        return cls(
            tree=code.tree,
            commit=provenance.get("git_commit"),
            branch=provenance.get("git_branch"),
            diff=provenance.get("git_diff") or "",
            is_dirty=provenance.get("git_dirty"),
            is_diff_cut=bool(provenance.get("git_diff_cut")),
        )

    @property
    def identity(self) -> str:
        """A name that equal versions share; "": not recorded.

        Untracked files count only in a snapshot.
        """
        if self.tree is not None:
            return f"snapshot {self.tree[:ID_CHARACTERS]}"
        return self.commit_text

    @property
    def commit_text(self) -> str:
        """The commit and, if there are uncommitted changes, a digest of them; "": no commit."""
        if self.commit is None:
            return ""
        text = f"commit {self.commit[:ID_CHARACTERS]}"
        if not self.diff:
            return text
        digest = hashlib.sha256(self.diff.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{text} with changes {digest[:_DIGEST_CHARACTERS]}"

    @property
    def text(self) -> str:
        """The version for people, on one line."""
        branch = f" ({self.branch})" if self.branch else ""
        commit = f"{self.commit_text}{branch}" if self.commit else ""
        if self.tree is None:
            return commit or "not recorded"
        return f"{self.identity} of {commit}" if commit else self.identity


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What is compared of a job."""

    #: how messages name it
    name: str
    #: of an array task: with its own arguments, and without the array
    spec: jobs.JobSpec
    provenance: Mapping[str, Any]
    #: as submitted
    script: str = ""
    #: of the newest attempt; None: not recorded
    environment: environments.Environment | None = None
    state: str = ""
    #: "CODE:SIGNAL"; "": none yet
    exit: str = ""
    elapsed_seconds: float | None = None
    #: (name, unit) -> last value, or the median of a rate or time
    metrics: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)

    @property
    def code(self) -> CodeVersion:
        return CodeVersion.of(self.spec.code, self.provenance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that differs. The names are columns and JSON fields."""

    section: Section
    #: "args.lr", "package numpy", "loss"
    key: str
    #: None: absent
    first: Any
    second: Any
    #: (second - first) / first; None: no numbers, or undefined
    relative: float | None = None
    #: unified diff of a text of several lines
    diff: str | None = None
    #: speed, which differs between equal runs
    is_speed: bool = False

"""Where a job came from: the working tree's commit and changes, the command, the versions."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

#: A diff beyond this is cut: it is kept to tell what ran, not as a backup.
DIFF_LIMIT_BYTES = 1024 * 1024
#: git status on a slow shared file system; the job does not wait longer for its papers.
GIT_TIMEOUT_SECONDS = 10.0

Git = Callable[[Sequence[str]], str | None]


def git_in(folder: Path) -> Git:
    """Return a function that runs git in `folder`: its output, or None when it failed.

    Where git would find no tree it is not started: that would be a process for each submission.
    """
    places = (folder, *folder.parents)
    if "GIT_DIR" not in os.environ and not any((place / ".git").exists() for place in places):
        return lambda arguments: None

    def run(arguments: Sequence[str]) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None

    return run


def collect(
    *,
    version: str,
    argv: Sequence[str],
    spec_source: str,
    template: str,
    template_hash: str,
    folder: Path,
    git: Git,
) -> str:
    """Return what is kept with the job, as JSON; `git` fields are null outside a working tree."""
    commit = git(["rev-parse", "HEAD"])
    # Optional locks are off so that a read-only or busy tree is not disturbed (man git).
    status = git(["--no-optional-locks", "status", "--porcelain"]) if commit else None
    diff = git(["--no-optional-locks", "diff", "HEAD"]) if status else None
    cut = diff is not None and len(diff.encode()) > DIFF_LIMIT_BYTES
    if diff is not None and cut:
        diff = diff.encode()[:DIFF_LIMIT_BYTES].decode(errors="ignore")
    return json.dumps(
        {
            "orchestrator_version": version,
            "argv": list(argv),
            "spec": spec_source,
            "template": template,
            "template_sha256": template_hash,
            "host": socket.gethostname(),
            "user": getpass.getuser(),
            "python": platform.python_version(),
            "folder": str(folder),
            "git_commit": commit.strip() if commit else None,
            "git_dirty": bool(status) if commit else None,
            "git_status": status,
            "git_diff": diff,
            "git_diff_cut": cut,
        },
        indent=1,
    )

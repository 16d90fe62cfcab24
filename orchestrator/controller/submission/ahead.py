"""sbatch, started while the intent of its submission is being stored.

Half of what sbatch takes is over before it opens its script: it is started when the run folder is
on disk, with a pipe for its stdin, and is given the script when nothing is left to be stored,
looked at or asked. Before that it has nothing to send, whatever ends it or us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from orchestrator.controller.session import context as contexts
from orchestrator.slurm import process, sbatch
from orchestrator.tracking import run_folder

#: What a pipe takes at once where nobody changed it (man 7 pipe).
_MOST_BYTES = 64 * 1024


class Ahead:
    """One sbatch that waits for its script, or none."""

    def __init__(self, context: contexts.Context, script: str) -> None:
        self._context = context
        self._script = script.encode()
        self._held: process.Held | None = None
        self._folder: run_folder.RunFolder | None = None

    @property
    def environ(self) -> Mapping[str, str] | None:
        """Return what it was started with; none: it was not."""
        return None if self._held is None else self._held.environ

    def close(self) -> None:
        """End it where it was given nothing."""
        if self._held is not None:
            self._held.close()
        self._name_script()

    def start(
        self, folder: run_folder.RunFolder, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        """Start this sbatch, if that is of use; what fails here fails again, and is told, later."""
        if not self._context.memory.ahead or len(self._script) > _MOST_BYTES:
            return
        with contextlib.suppress(process.CommandNotFound, OSError):
            folder.take_stdin()
            self._folder = folder
            self._held = process.Held(_from_stdin(argv, folder), environ)

    def send(
        self, folder: run_folder.RunFolder, argv: Sequence[str], environ: Mapping[str, str]
    ) -> process.Result | None:
        """Give it the script, and return its answer; none: it did not submit, and another must.

        It did not where it is not the one that is wanted now, where it has ended by itself, or
        where a wrapper of the site's reads the script, so that sbatch found nothing.
        """
        held = self._held
        if held is None or held.argv != _from_stdin(argv, folder) or held.environ != environ:
            return None
        if held.give(self._script):
            # Now, beside the wait: whoever opens it later finds the same text in the file.
            self._name_script()
            answer = held.answer(self._context.sbatch_timeout_seconds)
            if not sbatch.lacked_script(answer):
                return answer
        # The site's sbatch is not made for it.
        self._context.memory.ahead = False
        return None

    def _name_script(self) -> None:
        if self._folder is not None:
            self._folder.name_script()
        self._folder = None


def _from_stdin(argv: Sequence[str], folder: run_folder.RunFolder) -> tuple[str, ...]:
    script, handed = str(folder.script), str(folder.handed)
    return tuple(handed if word == script else word for word in argv)

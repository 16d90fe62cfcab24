"""Calls of orchestrator's own commands, each in a process: one that hangs does not stop others."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.mcp import untrusted
from orchestrator.processes import process

#: Of an answer: what is longer helps no agent.
TEXT_LIMIT_BYTES = 64 * 1024
_JSON_LIMIT_BYTES = 4 * 1024 * 1024
TIMEOUT_SECONDS = 300.0
#: A variable of the command: see cli/session.py.
_THROUGH = {"ORCHESTRATOR_THROUGH": "MCP"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caller:
    #: options that precede the command
    options: Sequence[str]
    environ: Mapping[str, str]
    is_read_only: bool

    def items(
        self,
        *words: str,
        codes: Collection[int] = (0,),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """Return the kind and items of a command's JSON, with texts of others kept apart.

        codes: exit codes with which it prints them. Raises OrchestratorError with its message.
        """
        result = self._run(words, _JSON_LIMIT_BYTES, timeout_seconds)
        try:
            envelope = json.loads(result.stdout)
        except ValueError:
            envelope = None
        if result.returncode not in codes or not isinstance(envelope, dict):
            raise _failure(words, result)
        items = [untrusted.separated(row) for row in envelope["items"]]
        answer = {"preamble": untrusted.PREAMBLE, "kind": envelope["kind"], "items": items}
        messages = result.stderr.strip()
        return {**answer, "messages": {"untrusted_text": messages}} if messages else answer

    def text(self, *words: str, codes: Collection[int] = (0,)) -> dict[str, Any]:
        """Return what a command prints, at most TEXT_LIMIT_BYTES, marked as untrusted."""
        try:
            result = self._run(words, TEXT_LIMIT_BYTES, TIMEOUT_SECONDS)
        except process.TooMuchOutputError as error:
            return _marked(error.output.encode()[:TEXT_LIMIT_BYTES], is_cut=True)
        if result.returncode not in codes:
            raise _failure(words, result)
        answer = _marked(result.stdout.encode(), is_cut=False)
        messages = result.stderr.strip()
        return {**answer, "messages": {"untrusted_text": messages}} if messages else answer

    def _run(
        self, words: Sequence[str], limit_bytes: int, timeout_seconds: float
    ) -> process.Result:
        # -P: a module of the folder must not replace one of Python.
        program = [sys.executable, "-P", "-m", "orchestrator"]
        read_only = ["--read-only"] if self.is_read_only else []
        return process.run(
            [*program, *self.options, *read_only, *words],
            timeout_seconds,
            {**self.environ, **_THROUGH},
            # A wait of minutes must not outlive the agent.
            die_with_parent=True,
            max_output_bytes=limit_bytes,
        )


def _marked(text: bytes, *, is_cut: bool) -> dict[str, Any]:
    decoded = text.decode(errors="replace")
    return {"preamble": untrusted.PREAMBLE, "untrusted_text": decoded, "is_cut": is_cut}


def _failure(words: Sequence[str], result: process.Result) -> errors.OrchestratorError:
    if result.timed_out:
        return errors.OrchestratorError(
            f"`orchestrator {words[0]}` did not answer in time and was stopped. list_jobs shows "
            "what it has done"
        )
    message = result.stderr.strip()[-4000:] or f"exit code {result.returncode}"
    return errors.OrchestratorError(message)

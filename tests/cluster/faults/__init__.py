"""Faults of the wrappers around Slurm's commands, and the log of their calls.

The wrappers are in `../wrappers/`; the docstring of `fault.py` explains the fields of a rule.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import pathlib
import time
from collections.abc import Iterable

#: Environment variable with the place of the rules.
VARIABLE = "ORCHESTRATOR_TEST_FAULTS"
SOCKET_TIMED_OUT = (
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One fault. The first rule that fits a call, and is not used up, is applied to it."""

    #: Command it is for, such as `sbatch`.
    command: str
    #: Fits only a call with this text among its arguments.
    match: str = ""
    #: Lets this many fitting calls pass first.
    skip: int = 0
    #: Is used up after this many calls; None is never.
    times: int | None = None
    #: Seconds to wait before the real command.
    delay_before_seconds: float = 0
    #: Seconds to wait after the real command, before its output is passed on.
    delay_after_seconds: float = 0
    #: The real command is run.
    run: bool = True
    #: Text instead of the real stdout; "" drops it.
    stdout: str | None = None
    #: Text before stdout.
    stdout_prefix: str = ""
    #: Lines after stdout, repeated in order; {n} becomes the number of the line.
    crowd: tuple[str, ...] = ()
    #: How many such lines.
    crowd_lines: int = 0
    #: Text instead of the real stderr.
    stderr: str | None = None
    #: Exit code instead of the real one.
    rc: int | None = None
    #: Point at which the process that called is killed: `before`, `during` or `after`.
    kill_parent: str | None = None
    #: Seconds after the point `during` began until the kill.
    kill_after_seconds: float = 0
    #: Point at which the wrapper stops until `Faults.go_on`: `before` or `after`.
    stop_at: str | None = None
    #: Seconds after which a stopped wrapper continues by itself.
    stop_seconds: float = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a wrapped command."""

    #: The command, such as `sbatch`.
    command: str
    #: Its arguments.
    argv: tuple[str, ...]
    #: Seconds since the epoch at its start.
    started_at: float
    #: Index of the rule that was applied.
    rule: int | None
    #: Exit code that the wrapper gave; None when it did not get that far.
    rc: int | None = None
    #: Exit code of the real command; None when it was not run.
    real_rc: int | None = None
    #: stdout of the real command.
    real_stdout: str | None = None
    #: Seconds from start to end; None when it did not get that far.
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """Rules in force."""

    #: Folder of the rules, as this machine sees it.
    folder: pathlib.Path
    #: Variables for the command under test.
    env: dict[str, str]

    def set(self, *rules: Rule) -> None:
        """Put other rules in force; they count calls from zero."""
        fresh = self.folder / "rules.json.new"
        fresh.write_text(dump(rules))
        fresh.chmod(0o644)
        fresh.rename(self.folder / "rules.json")

    def calls(self, command: str | None = None) -> list[Call]:
        """All calls so far, or those of one command, oldest first."""
        path = self.folder / "calls.jsonl"
        result: dict[str, dict[str, object]] = {}
        for line in _read_locked(path).splitlines() if path.exists() else ():
            record = json.loads(line)
            result.setdefault(record.pop("id"), {}).update(record)
        names = {field.name for field in dataclasses.fields(Call)}
        calls = [
            Call(**{name: value for name, value in record.items() if name in names})  # type: ignore[arg-type]
            for record in result.values()
        ]
        calls = [dataclasses.replace(call, argv=tuple(call.argv)) for call in calls]
        return [call for call in calls if command in (None, call.command)]

    def wait_stopped(self, timeout_seconds: float = 120) -> None:
        """Wait until a wrapper has stopped at the point of its rule."""
        deadline = time.monotonic() + timeout_seconds
        while not self._stopped():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no wrapper stopped in {timeout_seconds:.0f} s")
            time.sleep(0.02)

    def go_on_all(self) -> None:
        """Continue all stopped wrappers."""
        for path in self._stopped():
            path.with_suffix(".go").touch()

    def _stopped(self) -> list[pathlib.Path]:
        with contextlib.suppress(FileNotFoundError):
            marks = self.folder.glob("*.stopped")
            return [mark for mark in marks if not mark.with_suffix(".go").exists()]
        return []


def _read_locked(path: pathlib.Path) -> str:
    """The text of a file while no wrapper writes: a long line is written in several parts."""
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return file.read()


def dump(rules: Iterable[Rule]) -> str:
    """The rules as the wrappers read them."""
    stamp = time.time_ns()
    return json.dumps({"stamp": stamp, "rules": [dataclasses.asdict(rule) for rule in rules]})

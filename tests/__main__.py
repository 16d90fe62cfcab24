"""Run the tiers of tests one after another and print a table of the results; for script/test.

The checkout is the working directory. Each tier runs in its own session: an interrupt reaches
pytest once and lets fixtures clean up. A process that a tier leaves running is ended, and the tier
has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

#: Tier -> more arguments for its pytest. The smallest machine has two cores.
TIERS: Mapping[str, tuple[str, ...]] = {
    "lint": (),
    # Some of its tests wait, for time limits and for databases.
    "unit": ("-n", "3"),
    "flow": ("-n", "2"),
    # Several tests share the training runs of a module.
    "trainer": ("-n", "2", "--dist", "loadscope"),
    # Its tests mostly wait. Each worker has its own cluster.
    "cluster": ("-n", "5", "--dist", "loadgroup"),
}
RELEASES = ("22.05", "24.11", "26.05")

#: How long an interrupted tier may clean up: taking down the cluster takes seconds.
CLEAN_UP_SECONDS = 60.0
#: Helpers of Python and pytest end by themselves shortly after their parent.
LINGER_SECONDS = 3.0

#: Exit code of a shell for a command that Ctrl-C ended.
INTERRUPTED = 130

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


class Interrupted(Exception):
    """The run was interrupted by Ctrl-C or a signal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How a tier ended."""

    #: Name of the tier.
    tier: str
    #: Exit code: 0 is good.
    code: int
    #: Wall time.
    seconds: float
    #: Counts by pytest's words: passed, failed, errors, skipped.
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: Why it was skipped, what failed, what was left running.
    note: str = ""

    @property
    def word(self) -> str:
        """Return one word for the table."""
        if self.code:
            return "interrupted" if self.code == INTERRUPTED else "FAILED"
        return "SKIPPED" if set(self.counts) == {"skipped"} else "passed"


def counts_line(counts: Mapping[str, int]) -> str:
    """Return counts as pytest words them, `3 passed, 1 skipped`."""
    return ", ".join(f"{number} {word}" for word, number in counts.items()) or "no tests ran"


def read_report(path: Path) -> tuple[dict[str, int], str]:
    """Return the counts of a JUnit report and why the first skipped test was skipped."""
    cases = [] if not path.exists() else list(ElementTree.parse(path).getroot().iter("testcase"))
    counts = {"failed": 0, "passed": 0, "skipped": 0, "errors": 0}
    reason = ""
    for case in cases:
        kinds = {child.tag: child.get("message") or "" for child in case}
        if "failure" in kinds:
            counts["failed"] += 1
        elif "error" in kinds:
            counts["errors"] += 1
        elif "skipped" in kinds:
            counts["skipped"] += 1
            reason = reason or kinds["skipped"]
        else:
            counts["passed"] += 1
    return {word: number for word, number in counts.items() if number}, reason


@contextlib.contextmanager
def cluster_built_ahead(tiers: Sequence[str], environ: Mapping[str, str]) -> Iterator[list[int]]:
    """Build the test cluster while earlier tiers run; yield the PID of the build.

    The build mostly waits for downloads (90 to 120 s). The cluster tier waits for it, and reports
    why it failed.
    """
    if "cluster" not in tiers[1:] or os.geteuid() != 0:
        yield []
        return
    command = ["nice", sys.executable, "-m", "tests.cluster", "build"]
    null = subprocess.DEVNULL
    building = subprocess.Popen(
        command, env=environ, stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    try:
        yield [building.pid]
    finally:
        # Only a process that was not waited for still has its PID.
        if building.poll() is None:
            os.killpg(building.pid, signal.SIGTERM)
            building.wait()


def children(kept: Sequence[int] = ()) -> list[int]:
    """Return the child processes of this one, except those in `kept`; ended ones are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    result = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command's name is in parentheses and may contain anything.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                result.append(int(stat.parent.name))
    return [pid for pid in result if pid not in kept]


def end_leftovers(kept: Sequence[int]) -> list[str]:
    """End the processes that a tier left running, except those in `kept`; return their commands."""
    deadline = time.monotonic() + LINGER_SECONDS
    while children(kept) and time.monotonic() < deadline:
        time.sleep(0.1)
    ended: list[str] = []
    # The children of an ended process become ours.
    while left := children(kept):
        for pid in left:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                ended.append(command.replace("\0", " ").strip() or f"process {pid}")
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return ended


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Turn the signals that end a run into Interrupted."""

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        raise Interrupted

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code; INTERRUPTED after it could clean up."""
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait()
    except Interrupted:
        with contextlib.suppress(Interrupted, subprocess.TimeoutExpired):
            process.send_signal(signal.SIGINT)
            print(
                "\nInterrupted: cleaning up. Interrupt again to stop immediately.", file=sys.stderr
            )
            process.wait(CLEAN_UP_SECONDS)
        process.kill()
        process.wait()
        return INTERRUPTED


def lint_commands() -> dict[str, list[str]]:
    """Return the commands of the lint tier by name."""
    tool = Path(sys.prefix) / "bin"
    commands = {
        "ruff": [str(tool / "ruff"), "check", "."],
        "format": [str(tool / "ruff"), "format", "--check", "."],
        "mypy": [str(tool / "mypy")],
        "imports": [str(tool / "lint-imports")],
    }
    scripts = [str(path) for path in (*sorted(Path("script").iterdir()), Path(".ci/run"))]
    if (tool / "shellcheck").exists():
        commands["shellcheck"] = [str(tool / "shellcheck"), *scripts]
    return commands


def lint(environ: Mapping[str, str]) -> Result:
    """Run all linters, even if one of them fails."""
    began = time.monotonic()
    commands = lint_commands()
    failed = []
    for name, command in commands.items():
        print(f"--- {name}", flush=True)
        code = run(command, environ)
        if code == INTERRUPTED:
            raise Interrupted
        if code:
            failed.append(name)
    note = f"{', '.join(failed)} failed" if failed else ", ".join(commands)
    return Result(tier="lint", code=1 if failed else 0, seconds=time.monotonic() - began, note=note)


def tier_of(argument: str) -> str | None:
    """Return the tier of a test file, folder or node ID; None for any other argument of pytest."""
    path = Path(os.path.relpath(argument.partition("::")[0]))
    return path.parts[1] if path.parts[:1] == ("tests",) and len(path.parts) > 1 else None


def select(tier: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments for a tier's pytest: all its tests if none of them is named."""
    named = [tier_of(argument) for argument in arguments]
    mine = [argument for argument, of in zip(arguments, named, strict=True) if of in (None, tier)]
    return mine if tier in named else [f"tests/{tier}", *mine]


def test(tier: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Result:
    """Run one tier's pytest."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="orchestrator-test-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *TIERS[tier]]
        code = run([*command, *select(tier, arguments)], environ)
        # The report of an interrupted run lists the interrupted test as passed.
        counts, reason = ({}, "") if code == INTERRUPTED else read_report(report)
    note = "" if code == INTERRUPTED else counts_line(counts)
    result = Result(tier=tier, code=code, seconds=time.monotonic() - began, counts=counts)
    if result.word == "SKIPPED":
        note += f": {reason}"
        if environ.get("CI") == "true":
            code = 1
    elif code not in (0, INTERRUPTED) and "failed" not in counts and "errors" not in counts:
        note += f"; pytest ended with {code}"
    return dataclasses.replace(result, code=code, note=note)


def table(results: Sequence[Result]) -> str:
    """Return the results as a table, with totals like pytest's last line."""
    lines = [f"{'tier':8} {'result':11} {'time':>7}"]
    lines += [f"{r.tier:8} {r.word:11} {r.seconds:6.1f}s  {r.note}" for r in results]
    counts: dict[str, int] = {}
    for word in ("failed", "passed", "skipped", "errors"):
        if number := sum(result.counts.get(word, 0) for result in results):
            counts[word] = number
    closing = f" {counts_line(counts)} in {sum(r.seconds for r in results):.2f}s "
    return "\n".join([*lines, closing.center(80, "=")])


def kept_files(tiers: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return what the run leaves on the disk for the next one, and how to remove it."""
    lines = [f"the environment: {sys.prefix}; to remove it: rm -r {shlex.quote(sys.prefix)}"]
    # As in tests/cluster/machine.py.
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    lab = Path(environ.get("ORCHESTRATOR_LAB") or f"{cache}/orchestrator/lab").expanduser()
    if "cluster" in tiers and lab.exists():
        remove = f"rm -r --one-file-system {shlex.quote(str(lab))}"
        lines.append(f"the test cluster: {lab}; to remove it: {remove}")
    return lines


def run_tier(
    tier: str, arguments: Sequence[str], environ: Mapping[str, str], kept: Sequence[int]
) -> Result:
    """Run one tier, and end the processes that it leaves running, except those in `kept`."""
    print(f"\n##### {tier}", flush=True)
    began = time.monotonic()
    try:
        with interrupts():
            result = lint(environ) if tier == "lint" else test(tier, arguments, environ)
    except Interrupted:
        result = Result(tier=tier, code=INTERRUPTED, seconds=time.monotonic() - began)
    if left := end_leftovers(kept):
        note = f"{result.note}; left running: {'; '.join(left)}"
        result = dataclasses.replace(result, code=result.code or 1, note=note)
    return result


def main() -> int:
    """Run the selected tiers and return the highest exit code."""
    parser = argparse.ArgumentParser(prog="script/test")
    parser.add_argument("--long", action="store_true", help="also run tests marked slow")
    parser.add_argument("--release", choices=RELEASES, help="Slurm release of the cluster tier")
    parser.add_argument("--tier", action="append", choices=list(TIERS), help="run only this tier")
    parser.add_argument(
        "pytest",
        nargs="*",
        metavar="-- ARGUMENT",
        help="passed to pytest; with files or node IDs below tests/ only these run",
    )
    options = parser.parse_args()
    named = {tier for argument in options.pytest if (tier := tier_of(argument))}
    if unknown := named.difference(options.tier or TIERS):
        known = ", ".join(options.tier or TIERS)
        parser.error(f"tests/{min(unknown)} is not in the selected tiers: {known}")

    tools = Path(sys.prefix) / "bin"
    environ = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    # The tests start Python hundreds of times: without bytecode each process compiles everything.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.release:
        environ["ORCHESTRATOR_LAB_RELEASE"] = options.release
    arguments = [*(["--long"] if options.long else []), *options.pytest]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    tiers = [name for name in TIERS if name in (options.tier or named or TIERS)]
    results: list[Result] = []
    with cluster_built_ahead(tiers, environ) as kept:
        for tier in tiers:
            result = run_tier(tier, arguments, environ, kept)
            results.append(result)
            if result.code == INTERRUPTED:
                break
    kept_lines = "\n".join(f"  {line}" for line in kept_files(tiers, environ))
    print(f"\nKept for the next run:\n{kept_lines}\n\n{table(results)}", flush=True)
    return max(result.code for result in results)


if __name__ == "__main__":
    sys.exit(main())

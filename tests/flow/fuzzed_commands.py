"""Random command lines generated from click's commands, run by forks of this process.

Each case runs `cli.main()` in a process of its own batch, as another user where we are root, in a
copy of a prepared home. What one batch leaves behind is there for its next case.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from orchestrator import cli
from tests import fuzzing

#: Exit codes of the README's table; 70 is a bug.
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 6, 124, 130})
CASES_OF_A_BATCH = 40
#: Number of the cases that must exit with 0.
GOOD = -1
#: Whatever was stored can be read.
_LAST = (GOOD, ["db", "check"])
_NOBODY = 65534
#: <linux/prctl.h>, <linux/capability.h>
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522
#: They write to given paths, communicate with other programs, or run until they are stopped.
LEFT_OUT = {
    *(("schedule", "install"), ("serve",), ("web",), ("top",), ("notices", "test")),
    *(("completion",), ("mcp",), ("agent",), ("connect",), ("setup",)),
}
_LEFT_OUT_OPTIONS = {"--host", "--follow", "--watch", "--write", "--help", "--version"}
#: Otherwise they wait for what does not happen.
_ALWAYS = {("wait",): ["--timeout", "0"]}
_POOLS: Mapping[str, Sequence[str]] = {
    "references": fuzzing.REFERENCES,
    "reference": fuzzing.REFERENCES,
    "first": fuzzing.REFERENCES,
    "second": fuzzing.REFERENCES,
    "like": fuzzing.REFERENCES,
    "jobs": fuzzing.REFERENCES,
    "job_ids": fuzzing.REFERENCES,
    "sweep": ("lr", "@1", *fuzzing.REFERENCES),
    "sweeps": ("lr", "@1", *fuzzing.REFERENCES),
    "words": ("job.toml", "sweep.toml", "train.sbatch", "bad.toml", "deep.toml", "graph.toml"),
    "settings": (
        *("resources.nodes=2", "a.b=1", "job.name=x", "resources.nodes=1e400", "env.X=1"),
        *(
            "a" + ".a" * 3000 + "=1",
            "job={" * 20,
            "job.labels=['a']",
            "resources.nodes=" + "9" * 5000,
        ),
        *(
            "launch.arguments=" + "[" * 500,
            "job.time_limit=9999999999-00",
            "sweep.x=[1]",
            "=",
            "a.=1",
        ),
    ),
    "timeout": ("0", "-1", "nan", "1e-9", "x", "0.5", "-0.0", "inf5"),
    "name": ("nightly", "base", "demo", *fuzzing.TEXTS),
    "tz": fuzzing.ZONES,
    "cron": fuzzing.CRONS,
    "since": fuzzing.TIMES,
    "until": fuzzing.TIMES,
    "start": fuzzing.TIMES,
    "end": fuzzing.TIMES,
    "pattern": fuzzing.EXPRESSIONS,
    "grep": fuzzing.EXPRESSIONS,
    "file": (
        "figures.csv",
        "wide.csv",
        "extreme.csv",
        "hostile.csv",
        "job.toml",
        "graph.toml",
        "/dev/zero",
        ".",
    ),
    "log": ("log.txt", "metrics.jsonl", "/dev/null", "."),
    "rules": ("rules.toml", "bad.toml", "job.toml"),
    "against": ("base", "extreme", *fuzzing.TEXTS),
    "patterns_file": ("patterns.toml", "bad.toml", "deep.toml"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A case that went wrong."""

    number: int
    argv: list[str]
    #: None: the process died, or was too slow
    code: int | None
    seconds: float
    err: str


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands with their words."""

    def below(
        command: click.Command, context: click.Context, path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        if path and command.params:
            yield path, command
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from below(inner, click.Context(inner, parent=context), (*path, name))

    yield from below(cli.cli, click.Context(cli.cli), ())


def command_line(
    rng: random.Random, known: Sequence[tuple[tuple[str, ...], click.Command]]
) -> list[str]:
    """Return the words of a command with some of its options and hostile values."""
    path, command = rng.choice(known)
    words: list[str] = []
    if rng.random() < 0.1:
        option = rng.choice(["--profile", "--runs-dir", "--state-dir"])
        words += [option, rng.choice(["x", "state", fuzzing.hostile(rng)])]
    words += path
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option)
        and not _LEFT_OUT_OPTIONS & set(option.opts)
        # A job of its own, which does not start here: it is waited for, and then for its end.
        and (path, option.name) != (("doctor",), "with_job")
    ]
    for option in rng.sample(options, min(len(options), rng.choice([0, 0, 1, 1, 2, 4]))):
        name = rng.choice([*option.opts, *option.secondary_opts])
        words.append(name)
        if not option.is_flag:
            words.append(_value(rng, option))
    words += _ALWAYS.get(path, [])
    for argument in command.params:
        if isinstance(argument, click.Argument):
            most = 3 if argument.nargs < 0 else argument.nargs
            fewest = 0 if not argument.required or rng.random() < 0.05 else most
            count = rng.randint(fewest, most) if argument.nargs < 0 else max(fewest, 1)
            words += [_value(rng, argument) for _ in range(count)]
    if rng.random() < 0.03:
        words.insert(rng.randrange(len(words) + 1), fuzzing.hostile(rng))
    if "words" in {parameter.name for parameter in command.params} and rng.random() < 0.2:
        words += ["--", *(fuzzing.hostile(rng) for _ in range(rng.randrange(4)))]
    # execve() takes no NUL; a surrogate outside U+DC80..U+DCFF is no byte.
    return [word.replace("\0", "") for word in words]


def _value(rng: random.Random, parameter: click.Parameter) -> str:
    draw = rng.random()
    if isinstance(parameter.type, click.Choice) and draw < 0.8:
        return str(rng.choice(list(parameter.type.choices)))
    pool = _POOLS.get(parameter.name or "")
    if pool and (draw < 0.75 or parameter.name == "timeout"):
        return rng.choice(pool)
    if parameter.type.name in ("integer", "float", "integer range", "float range") and draw < 0.85:
        return rng.choice(fuzzing.NUMBERS)
    return fuzzing.hostile(rng)


def run_batch(
    template: Path,
    folder: Path,
    cases: Sequence[tuple[int, list[str]]],
    environ: Mapping[str, str],
) -> list[Failure]:
    """Run the cases one after another in a fork, in a copy of the template; return what failed."""
    shutil.copytree(template, folder, symlinks=True)
    report = folder / "report.jsonl"
    pending = [*cases, _LAST]
    failures = []
    while pending:
        pid = os.fork()
        if not pid:
            _run_all(folder, report, pending, environ)
        status = os.waitpid(pid, 0)[1]
        lines = report.read_text().splitlines() if report.exists() else []
        report.unlink(missing_ok=True)
        done = [json.loads(line) for line in lines]
        failures += [Failure(**item) for item in done if item["err"] is not None]
        rest = pending[len(done) :]
        if not rest:
            break
        # The process died in the first of them, or it was too slow and was ended.
        number, argv = rest[0]
        failures.append(
            Failure(number=number, argv=argv, code=None, seconds=-1.0, err=f"wait status {status}")
        )
        pending = rest[1:]
    shutil.rmtree(folder)
    return failures


def _run_all(
    folder: Path, report: Path, cases: Sequence[tuple[int, list[str]]], environ: Mapping[str, str]
) -> None:
    os.setsid()
    # Python's default; pytest changes it.
    warnings.resetwarnings()
    for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", hidden)
    os.environ.clear()
    os.environ.update({**environ, "HOME": str(folder / "home")})
    time.tzset()
    handle = report.open("a")
    if os.geteuid() == 0:
        for path, folders, files in os.walk(folder):
            for name in (".", *folders, *files):
                os.lchown(os.path.join(path, name), _NOBODY, _NOBODY)
        _become_nobody()
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 2**20, 64 * 2**20))
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    out, err = folder / "out", folder / "err"
    for number, argv in cases:
        os.chdir(folder / "work")
        code, seconds = _run_one(argv, out, err)
        output = err.read_text(errors="replace")
        good = {0} if number == GOOD else DOCUMENTED
        bad = code not in good or "Traceback" in output or seconds > fuzzing.LIMIT_SECONDS
        entry = {"number": number, "argv": argv, "code": code, "seconds": seconds}
        handle.write(json.dumps({**entry, "err": output[-3000:] if bad else None}) + "\n")
        handle.flush()
    os._exit(0)


def _become_nobody() -> None:
    """Give up the right to write elsewhere, and keep that to read: Python may lie in /root."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setgid(_NOBODY)
    done = [libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)]
    os.setuid(_NOBODY)
    rights = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # effective, permitted, inheritable; each in two halves
    done.append(libc.capset(header, (ctypes.c_uint32 * 6)(rights, rights, rights, 0, 0, 0)))
    done.append(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0))
    assert done == [0, 0, 0], os.strerror(ctypes.get_errno())


def _run_one(argv: Sequence[str], out: Path, err: Path) -> tuple[int | None, float]:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    os.close(null)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    sys.argv = ["orchestrator", *argv]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The default action ends the process: what hangs in C is seen, too.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2 * fuzzing.LIMIT_SECONDS)
    begun = time.monotonic()
    code: int | None = 0
    try:
        cli.main()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException as exc:
        print(f"escaped: {exc!r}\nTraceback", file=sys.stderr)
    seconds = time.monotonic() - begun
    signal.alarm(0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    gc.unfreeze()
    return code, seconds

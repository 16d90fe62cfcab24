"""#SBATCH lines: the options that a spec requests, their quoting, and how sbatch parses them."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Sequence

from orchestrator import errors, jobs
from orchestrator.config import profiles
from orchestrator.jobs import dependency
from orchestrator.rendering import shell
from orchestrator.specs import ranks

#: One option of sbatch: its long name, and its value unless it is a flag.
Option: typing.TypeAlias = tuple[str, str | None]


def intended(spec: jobs.JobSpec, profile: profiles.Profile) -> list[Option]:
    """Return the sbatch options that a spec requests, by their long names (man sbatch)."""
    spec = profiles.with_defaults(spec, profile)
    resources = spec.resources
    gpus: str | None = None
    if resources.gpus_per_node is not None:
        gpus = f"{resources.gpu_type}:" if resources.gpu_type else ""
        gpus += str(resources.gpus_per_node)
    gres = resources.gres
    if gpus is not None and profile.gres_style == "gres":
        gres, gpus = f"gpu:{gpus}", None
    options: dict[str, jobs.SbatchValue | None] = {
        "job-name": spec.name,
        "account": spec.account or None,
        "partition": spec.partition or None,
        "qos": spec.qos or None,
        "reservation": spec.reservation,
        "constraint": spec.constraint,
        "time": spec.time_limit,
        "nodes": resources.nodes,
        "ntasks": resources.ntasks,
        "ntasks-per-node": ranks.tasks_per_node(spec),
        "cpus-per-task": resources.cpus_per_task,
        "mem": resources.mem,
        "mem-per-cpu": resources.mem_per_cpu,
        "mem-per-gpu": resources.mem_per_gpu,
        "gpus-per-node": gpus,
        "gres": gres,
        "tmp": resources.tmp,
        "exclusive": spec.exclusive,
        "nodelist": spec.nodelist,
        "exclude": spec.exclude,
        # Names of our own jobs become job IDs on sbatch's command line.
        "dependency": dependency.split(spec.dependency)[0],
        "requeue": spec.requeue is True,
        "no-requeue": spec.requeue is False,
        # B: only to the batch shell, whose trap creates the stop file. It would kill torchrun.
        "signal": f"B:USR1@{spec.signal_seconds}" if spec.signal_seconds is not None else None,
        "mail-type": spec.mail_type,
        "mail-user": spec.mail_user,
        "comment": spec.comment,
        "chdir": spec.chdir,
        "output": spec.output,
        "error": spec.error,
        "array": _array(spec.array),
        # A requeued attempt would truncate the log of the previous one.
        "open-mode": "append",
        "export": spec.environment.export.upper(),
        **spec.sbatch,
    }
    return [
        (key, None if value is True else str(value))
        for key, value in options.items()
        if value is not None and value is not False
    ]


def quote(option: Option) -> str:
    """Quote an option for sbatch, which unlike a shell interprets backslashes within quotes."""
    key, value = option
    if value is None:
        return f"--{shell.one_line(key)}"
    if not re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", shell.one_line(value)):
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"--{shell.one_line(key)}={value}"


def parse(script: str) -> list[Option]:
    """Return the options that sbatch 22.05, 24.11 and 26.05 find in a script, in their order.

    They print them with -vvvv. sbatch reads lines that begin with #SBATCH, up to the first line
    that is neither blank nor a comment. Both kinds of quotes work, a backslash escapes the next
    character, also within quotes, and # outside quotes begins a comment.
    """
    options: list[Option] = []
    for _, line in header(script.split("\n")):
        if line.startswith("#SBATCH"):
            for argument in arguments(line):
                key, equals, value = argument.removeprefix("--").partition("=")
                options.append((key, value if equals else None))
    return options


def header(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines in which sbatch looks for directives."""
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            return
        yield number, line


def _array(array: jobs.Array) -> str | None:
    tasks = array.task_ids
    if tasks is None:
        return None
    limit = "" if array.max_running is None else f"%{array.max_running}"
    return f"{tasks[0]}-{tasks[-1]}{limit}"


def arguments(line: str) -> list[str]:
    """Split the text after #SBATCH into arguments; raises TemplateError for an unmatched quote."""
    line = line.removeprefix("#SBATCH")
    words: list[str] = []
    argument, quote, started, escaped = "", "", False, False
    for character in line:
        if escaped:
            argument, escaped = argument + character, False
        elif character == "\\":
            escaped = started = True
        elif quote:
            argument, quote = (
                (argument, "") if character == quote else (argument + character, quote)
            )
        elif character in "'\"":
            quote, started = character, True
        elif character == "#":
            break
        elif character.isspace():
            words += [argument] if started else []
            argument, started = "", False
        else:
            argument, started = argument + character, True
    if quote:
        raise errors.TemplateError(f"unmatched {quote} in #SBATCH{line}")
    return words + ([argument] if started else [])

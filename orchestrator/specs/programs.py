"""What a spec runs: whether it is Python, and its name."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence

from orchestrator import jobs
from orchestrator.toml import values

_PYTHON = re.compile(r"python[0-9.]*")
#: Options of Python without a value, also joined (-uO), and those with one (`python --help`).
_FLAGS = re.compile(r"-[bBdEiIOPqsSuvx]+")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
#: Modules that start the ranks themselves.
_STARTERS = (
    *("torch.distributed.run", "torch.distributed.launch", "lightning.fabric.cli"),
    *("accelerate", "deepspeed", "horovod", "colossalai"),
)
#: Programs that start the ranks themselves.
STARTERS = frozenset(
    "accelerate colossalai deepspeed fabric horovodrun mpiexec mpirun ray srun torchrun".split()
)
#: Programs whose file or program is a better name: `bash run.sh` is "run".
_WRAPPERS = frozenset(
    "accelerate bash composer dash deepspeed env mpiexec mpirun nice nohup numactl pipenv poetry "
    "sh srun stdbuf taskset time timeout torchrun uv zsh".split()
)
_FILE = re.compile(r".*\.(?:py|sh)")
#: The first word of a shell line that is no assignment.
_FIRST_WORD = re.compile(r"(?:\w+=\S*\s+)*([A-Za-z0-9_./+-]+)(?=\s|$)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PythonProgram:
    """A Python script or module."""

    #: the interpreter as it was given; None: none was
    interpreter: str | None = None
    #: options of the interpreter other than -u
    options: tuple[str, ...] = ()
    #: ("train.py",) or ("-m", "package.module")
    target: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def module(self) -> str | None:
        return self.target[1] if self.target[0] == "-m" else None

    @property
    def shown(self) -> str:
        return self.target[-1]


def words(launch: jobs.Launch) -> tuple[str, ...]:
    """Return the program and its arguments without those in `[args]`; () for a shell line."""
    if launch.module is not None:
        return "-m", launch.module
    return launch.program if launch.script is None else (launch.script,)


def is_for_python(program: Sequence[str]) -> bool:
    """Return whether words begin with a script or an option, without the interpreter."""
    return "".join(program[:1]).startswith("-") or "".join(program[:1]).endswith(".py")


def python_program(launch: jobs.Launch) -> PythonProgram | None:
    """Return the script or module that is run; None for anything else."""
    if launch.command is not None or launch.batch_file is not None:
        return None
    rest = words(launch)
    interpreter: str | None = None
    options: tuple[str, ...] = ()
    if rest and _PYTHON.fullmatch(os.path.basename(rest[0])):
        interpreter, rest = rest[0], rest[1:]
    is_python = interpreter is not None or is_for_python(rest)
    if is_python and not "".join(rest[:1]).endswith(".py"):
        options = tuple(_options(rest))
        rest = rest[len(options) :]
        is_python = rest[:1] == ("-m",) or not "".join(rest[:1]).startswith("-")
    length = 2 if rest[:1] == ("-m",) else 1
    if not is_python or not all(rest[:length]) or len(rest) < length:
        return None
    return PythonProgram(
        interpreter=interpreter,
        options=tuple(option for option in options if option != "-u"),
        target=rest[:length],
        arguments=rest[length:],
    )


def is_rank(launch: jobs.Launch) -> bool:
    """Return whether the program is Python that runs as one rank; torch.distributed.run is not."""
    program = python_program(launch)
    if program is None:
        return False
    return not any(f"{program.module}.".startswith(f"{starter}.") for starter in _STARTERS)


def _options(rest: Sequence[str]) -> Iterator[str]:
    """Yield the options of Python before the script or module."""
    is_value = False
    for word in rest:
        is_known = word.startswith(_WITH_VALUE) or _FLAGS.fullmatch(word)
        if not is_value and not is_known:
            return
        yield word
        is_value = not is_value and word in _WITH_VALUE


def name(launch: jobs.Launch) -> str:
    """Return a job's name from its program: "train" for train.py; "" if there is none."""
    program = python_program(launch)
    rest = words(launch)
    if program is not None:
        text = program.shown if program.module is None else program.module.rpartition(".")[2]
    elif rest:
        is_wrapper = os.path.basename(rest[0]) in _WRAPPERS
        files = (word for word in rest[1:] if is_wrapper and _FILE.fullmatch(word))
        text = next(files, rest[0])
    elif launch.command is not None and (first := _FIRST_WORD.match(launch.command.strip())):
        text = first[1]
    else:
        return "shell" if (launch.command or "").strip() else ""
    text = os.path.basename(text.rstrip("/"))
    valid = values.fitting_name(re.sub(r"\.(?:py|sh)$", "", text))
    # A name must not look like a job ID.
    return valid if valid[:1].isalpha() and not valid.startswith("local-") else f"job-{valid}"

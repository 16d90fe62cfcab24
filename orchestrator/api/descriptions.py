"""The arguments of `submit`, `render` and `sweep` as a description of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from orchestrator import errors, jobs, specs
from orchestrator.controller.submission import requests
from orchestrator.toml import key_paths

#: A spec, a batch file or a program; the words of a command line; or the keys of a spec.
Spec: TypeAlias = str | os.PathLike[str] | Sequence[str] | Mapping[str, Any]
#: Of a program, by name.
Arguments: TypeAlias = Mapping[str, jobs.ArgumentValue]


class Flags(TypedDict, total=False):
    """The options of `orchestrator submit` for keys of the spec; docs/reference.md explains them.

    Memory has Slurm's units ("440G"; a number alone is megabytes), time limits have Slurm's forms
    ("30" is 30 minutes).
    """

    name: str
    partition: str
    account: str
    qos: str
    reservation: str
    constraint: str
    time_limit: str
    comment: str
    mail_type: str
    mail_user: str
    dependency: str
    requeue: bool
    signal_seconds: int
    exclusive: bool
    nodelist: str
    exclude: str
    output: str
    error: str
    chdir: str
    labels: Sequence[str]
    nodes: int
    ntasks: int
    ntasks_per_node: int
    cpus_per_task: int
    mem: str
    mem_per_cpu: str
    mem_per_gpu: str
    gpus_per_node: int
    gpu_type: str
    gpu_vendor: Literal["nvidia", "amd", "intel"]
    gres: str
    tmp: str
    module: Sequence[str]
    conda: str
    venv: str
    fabric: str
    variable: Mapping[str, str]
    inherit: Sequence[str]
    container_runtime: str
    image: str
    bind: Sequence[str]
    container_gpu: Literal["nv", "rocm", "none"]
    framework: Literal[
        "accelerate",
        "deepspeed",
        "jax",
        "lightning",
        "megatron",
        "ray",
        "torchtitan",
        "transformers",
    ]
    launcher: str
    rendezvous: Literal["auto", "standalone", "c10d", "static"]
    nproc_per_node: int | Literal["auto"]
    command: str
    array_size: int
    max_running: int
    pattern: Sequence[str]
    gpu_csv: Sequence[str]


def described(
    folder: Path,
    spec: Spec | None,
    changes: Mapping[str, object] | None,
    args: Arguments | None,
    arguments: Sequence[str],
    flags: Flags,
) -> requests.Description:
    """Return what the arguments of `submit` describe. Raises RequestError."""
    keys = {flag.names[0].replace("-", "_"): flag.key for flag in specs.FLAGS}
    if unknown := [name for name in flags if name not in keys]:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    words: Sequence[str] = ()
    mapping: Mapping[str, object] | None = None
    arguments = _words("arguments", arguments)
    if isinstance(spec, Mapping):
        mapping = _plain(spec)
    elif isinstance(spec, str | os.PathLike):
        words = [os.fspath(spec)]
        if args and not arguments and words[0].endswith(".py"):
            # A program on the command line has its arguments as words.
            mapping = {"launch": {"script": words[0]}}
    elif spec is not None:
        arguments = [*_words("spec", spec), *arguments]
    settings: list[specs.Setting] = [
        (_path(key), _plain(value)) for key, value in (changes or {}).items()
    ]
    settings += [(("args", key), _plain(value)) for key, value in (args or {}).items()]
    return requests.Description(
        words=words,
        mapping=mapping,
        arguments=arguments,
        settings=settings,
        flags={keys[name]: _plain(value) for name, value in flags.items()},
        # Messages and records show paths as they are given.
        folder=Path() if folder == Path.cwd() else folder,
        argv=sys.argv,
    )


def check_count(name: str, count: int | None) -> None:
    """Raise RequestError for a negative number of lines, values or jobs."""
    if count is not None and count < 0:
        raise errors.RequestError(f"{name} must be 0 or more (got {count})")


def _words(name: str, given: object) -> list[str]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        hint = "" if name == "arguments" else ", or a path or a mapping; a job runs no function"
        raise TypeError(f'{name} must be a list of words, ["--lr", "0.1"]{hint} (got {given!r})')
    return [str(word) for word in given]


def _path(key: str) -> key_paths.KeyPath:
    try:
        path, end = key_paths.read_key(key)
    except key_paths.NotTomlError:
        path, end = (), 0
    if not path or end < len(key):
        raise errors.RequestError(f"set: {key!r} is not a key of a spec; write resources.nodes")
    return path


def _plain(value: Any) -> Any:
    """Return a value with the types that a TOML file has.

    Paths become text, and numbers and arrays of NumPy and PyTorch those of Python.
    """
    if callable(as_python := getattr(value, "tolist", None)):
        value = as_python()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value

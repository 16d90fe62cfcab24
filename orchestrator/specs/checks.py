"""What is wrong with a spec whose types are right: forms, limits and keys that contradict.

Each check gives (paths, message): the first path is where the problem is told, and nothing is told
where one of the paths has a problem already.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from orchestrator import jobs, retries
from orchestrator.specs import changes, sbatch_options, secrets, toml_tables
from orchestrator.toml import key_paths, schema, values

Finding: TypeAlias = tuple[tuple[key_paths.KeyPath, ...], str]

#: Slurm cuts nothing, but a longer comment belongs into a file; slurmdbd's column is of type text.
_COMMENT_BYTES = 1000
#: sbatch keeps the time of --signal in 16 bits (man sbatch: 0 to 65535).
_SIGNAL_SECONDS = 65535
_INTEGER_MAX = 2**31 - 1
_ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]*")
_LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+)?|local-[0-9]+")
_PATTERN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://")
#: What our log reader can fill in; the rest differs by node or task.
_OUTPUT_ESCAPES = frozenset({"%j", "%A", "%a", "%x", "%u", "%%"})
_LEAST = {
    **dict.fromkeys(("nodes", "ntasks", "ntasks_per_node", "cpus_per_task"), 1),
    **{"gpus_per_node": 0, "signal_seconds": 1, "nproc_per_node": 1, "size": 1, "max_running": 1},
    **{"stalled_minutes": 0, "slow_percent": 0},
}
_MOST = {"signal_seconds": _SIGNAL_SECONDS, "slow_percent": 99}
#: Paths are quoted in the script, so the shell puts no home folder in place of ~.
_PATH_KEYS = (
    ("job", "output"),
    ("job", "error"),
    ("job", "chdir"),
    ("environment", "venv"),
    ("environment", "conda"),
    ("environment", "secrets_file"),
    ("container", "image"),
    ("launch", "script"),
)
#: What begins with a dash would be read as an option by module, conda, apptainer or torchrun.
_NO_DASH = (*_PATH_KEYS, ("launch", "module"))


def findings(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Give everything that is wrong with a spec; touches no file."""
    tables = toml_tables.to_tables(spec)
    for check in (_forms, _numbers, _paths, _output, _labels):
        yield from check(tables)
    for rule in (_resources, _environment, _container, _launch, _arguments, _array, _sbatch):
        yield from rule(spec)
    yield from _metrics(spec)
    yield from _retry(spec)


def _at(*path: str | int) -> tuple[key_paths.KeyPath, ...]:
    return (path,)


def _leaves(tables: dict[str, dict[str, object]]) -> Iterator[tuple[str, str, object]]:
    for table, keys in tables.items():
        if table in toml_tables.RECORDS:
            for key, value in keys.items():
                if value is not None:
                    yield table, key, value


def _forms(tables: dict[str, dict[str, object]]) -> Iterator[Finding]:
    if not tables["job"]["name"]:
        yield _at("job", "name"), "is missing: every job needs a name"
    elif _JOB_ID.fullmatch(str(tables["job"]["name"])):
        # `cancel 7777` must never mean another job than Slurm's 7777.
        yield _at("job", "name"), "reads as a job ID: put a letter before it"
    for table, key, value in _leaves(tables):
        if table in ("job", "resources") and isinstance(value, str):
            if (misfit := values.form_error(key, value)) and (value or key != "name"):
                yield _at(table, key), f"{misfit} (got {schema.as_toml(value)})"
        elif value == "" and isinstance(value, str):
            yield _at(table, key), "is empty: leave the key out"
    comment = tables["job"]["comment"]
    if isinstance(comment, str):
        if not comment:
            yield _at("job", "comment"), "is empty: leave the key out"
        if (size := len(comment.encode(errors="surrogatepass"))) > _COMMENT_BYTES:
            yield _at("job", "comment"), f"must be at most {_COMMENT_BYTES} bytes (got {size})"


def _numbers(tables: dict[str, dict[str, object]]) -> Iterator[Finding]:
    for table, key, value in _leaves(tables):
        if table != "retry" and isinstance(value, int) and not isinstance(value, bool):
            least = _LEAST[key]
            most = _MOST.get(key, _INTEGER_MAX)
            if value < least:
                yield _at(table, key), f"must be >= {least} (got {value})"
            elif value > most:
                yield _at(table, key), f"must be <= {most} (got {value})"


def _paths(tables: dict[str, dict[str, object]]) -> Iterator[Finding]:
    for table, key in _PATH_KEYS:
        value = tables[table][key]
        if isinstance(value, str) and value.startswith("~"):
            yield _at(table, key), "~ is not replaced here: write the whole path"
    for table, key in _NO_DASH:
        value = tables[table][key]
        if isinstance(value, str) and value.startswith("-"):
            yield _at(table, key), f"must not begin with a dash (got {schema.as_toml(value)})"


def _output(tables: dict[str, dict[str, object]]) -> Iterator[Finding]:
    for key in ("output", "error"):
        value = tables["job"][key]
        if isinstance(value, str) and (misfit := output_error(value)):
            yield _at("job", key), misfit


def output_error(value: str) -> str:
    """Return why a log of this name could not be followed; empty where it can."""
    escapes = set(re.findall(r"%(?:.|$)", value))
    # A backslash switches the replacement of % off (man sbatch, filename pattern).
    if "\\" in value:
        return "must hold no backslash: Slurm would replace no % then"
    if strange := sorted(escapes - _OUTPUT_ESCAPES):
        return f"must not hold {strange[0]}: only %j %A %a %x %u can be followed"
    if "%j" not in escapes and not {"%A", "%a"} <= escapes:
        return "must hold %j, or the logs of several jobs would mix"
    return ""


def _labels(tables: dict[str, dict[str, object]]) -> Iterator[Finding]:
    seen: set[str] = set()
    labels = tables["job"]["labels"]
    for place, label in enumerate(labels if isinstance(labels, tuple) else ()):
        found = _LABEL.fullmatch(label)
        if found is None:
            told = f'must be "key=value" (got {schema.as_toml(label)})'
            yield _at("job", "labels", place), told
        elif found[1] in seen:
            yield _at("job", "labels", place), f"is there twice: {found[1]}"
        else:
            seen.add(found[1])


def _resources(spec: jobs.JobSpec) -> Iterator[Finding]:
    asked = spec.resources
    if asked.gres is not None and (asked.gpus_per_node is not None or asked.gpu_type is not None):
        other = "gpus_per_node" if asked.gpus_per_node is not None else "gpu_type"
        yield _at("resources", "gres"), f"say either gres or {other}, not both"
    elif asked.gpu_type is not None and not asked.gpus_per_node:
        paths = ("resources", "gpu_type"), ("resources", "gpus_per_node")
        yield paths, "needs gpus_per_node"
    memory = [key for key in ("mem", "mem_per_cpu", "mem_per_gpu") if getattr(asked, key)]
    if len(memory) > 1:
        yield _at("resources", memory[1]), f"say either {' or '.join(memory)}, not several"
    if asked.mem_per_gpu and not asked.gpus_per_node and asked.gres is None:
        paths = ("resources", "mem_per_gpu"), ("resources", "gpus_per_node")
        yield paths, "needs gpus_per_node or gres"


def _environment(spec: jobs.JobSpec) -> Iterator[Finding]:
    environment = spec.environment
    if environment.conda is not None and environment.venv is not None:
        yield _at("environment", "venv"), "say either conda or venv, not both"
    for place, module in enumerate(environment.modules):
        if not module or module.startswith("-"):
            told = f"must be a module's name (got {schema.as_toml(module)})"
            yield _at("environment", "modules", place), told
    for name in environment.variables:
        if told := values.variable_name_error(name):
            yield _at("environment", "variables", name), told
    for place, name in enumerate(environment.inherit):
        if told := values.variable_name_error(name):
            yield _at("environment", "inherit", place), told
    if environment.inherit and environment.export == "none":
        paths = ("environment", "inherit"), ("environment", "export")
        yield paths, 'needs export = "all"; with "none" give values in environment.variables'


def _container(spec: jobs.JobSpec) -> Iterator[Finding]:
    container = spec.container
    runtime, image = container.runtime, container.image
    if runtime == "none":
        for key in ("image", "binds"):
            if getattr(container, key):
                paths = ("container", key), ("container", "runtime")
                yield paths, 'needs a runtime: set container.runtime, such as "apptainer"'
        if container.gpu != "none":
            yield (("container", "gpu"), ("container", "runtime")), "needs a runtime and an image"
        return
    if image is None:
        yield (("container", "image"), ("container", "runtime")), f"is missing: {runtime} needs one"
    elif runtime != "pyxis" and (found := _URI.match(image)):
        told = f"{found[0]} would be fetched by every node: build a SIF first: {runtime} build"
        yield _at("container", "image"), f"{told} IMAGE.sif {schema.as_toml(image)[1:-1]}"
    for place, bind in enumerate(container.binds):
        if not values.is_bind(bind):
            told = f"must be {values.BIND_WORDS} (got {schema.as_toml(bind)})"
            yield _at("container", "binds", place), told


def _launch(spec: jobs.JobSpec) -> Iterator[Finding]:
    launch, asked = spec.launch, spec.resources
    if launch.batch_file is not None:
        return
    ways = ("module", "script", "program", "command")
    given = [way for way in ways if getattr(launch, way)]
    if not given:
        told = "says nothing to run: set module, script or command, or give a program after --"
        yield _at("launch"), told
    elif len(given) > 1:
        yield _at("launch", given[1]), f"say either {' or '.join(given)}, not several"
    if launch.module and not _MODULE.fullmatch(launch.module):
        told = 'must be a Python module such as "trainers.train" '
        told += f"(got {schema.as_toml(launch.module)})"
        yield _at("launch", "module"), told
    if launch.program and not launch.program[0]:
        yield _at("launch", "program", 0), "is empty: a program is needed"
    if launch.command is not None and not launch.command.strip():
        yield _at("launch", "command"), "is empty: a command is needed"
    if launch.launcher != "torchrun":
        for key in ("rendezvous", "nproc_per_node"):
            if getattr(launch, key) != "auto":
                yield (("launch", key), ("launch", "launcher")), "is for the launcher torchrun only"
    elif launch.rendezvous == "standalone" and asked.nodes > 1:
        told = f"standalone is for one node (resources.nodes is {asked.nodes}): use auto or c10d"
        yield (("launch", "rendezvous"), ("resources", "nodes")), told
    if launch.launcher == "srun" and not launch.command:
        needs = ("ntasks_per_node", "ntasks", "gpus_per_node")
        if not any(getattr(asked, key) for key in needs) and asked.gres is None:
            paths = ("launch", "launcher"), *(("resources", key) for key in needs)
            told = "srun needs to know the ranks: set resources.ntasks_per_node or gpus_per_node"
            yield paths, told


def _arguments(spec: jobs.JobSpec) -> Iterator[Finding]:
    if spec.args and (spec.launch.command or spec.launch.program):
        way = "command" if spec.launch.command else "program"
        told = f"cannot go with launch.{way}: write the arguments behind the {way} itself"
        yield _at("args"), told
    yield from each_argument(("args",), spec.args)


def each_argument(
    table: key_paths.KeyPath, arguments: Mapping[str, jobs.ArgumentValue]
) -> Iterator[Finding]:
    """Give what is wrong with the names and numbers of arguments."""
    for name, value in arguments.items():
        if not _ARGUMENT.fullmatch(name):
            told = "must be an argument's name without its dashes: letters, digits and _ . / : @ -"
            yield _at(*table, name), told
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, float) and not math.isfinite(item):
                yield _at(*table, name), f"must be a finite number (got {item})"


def _array(spec: jobs.JobSpec) -> Iterator[Finding]:
    array = spec.array
    if array.tasks is not None and array.size is not None:
        yield _at("array", "size"), "say either tasks or size, not both"
    if array.task_ids is None and array.max_running is not None:
        paths = ("array", "max_running"), ("array", "tasks"), ("array", "size")
        yield paths, "needs array.tasks or array.size"
    if array.tasks is None:
        return
    if not array.tasks:
        yield _at("array", "tasks"), "is empty: name a task, or leave the key out"
    if spec.launch.command or spec.launch.program:
        way = "command" if spec.launch.command else "program"
        told = (
            f"cannot go with launch.{way}, which takes no arguments: "
            "set array.size and read $SLURM_ARRAY_TASK_ID there"
        )
        yield _at("array", "tasks"), told
    for place, arguments in enumerate(array.tasks):
        yield from each_argument(("array", "tasks", place), arguments)


def _sbatch(spec: jobs.JobSpec) -> Iterator[Finding]:
    for key in spec.sbatch:
        if told := sbatch_options.objection(key):
            yield _at("sbatch", key), told


def _metrics(spec: jobs.JobSpec) -> Iterator[Finding]:
    for place, name in enumerate(spec.metrics.patterns):
        if not _PATTERN_NAME.fullmatch(name):
            told = f"must be a pattern's name (got {schema.as_toml(name)})"
            yield _at("metrics", "patterns", place), told


def _retry(spec: jobs.JobSpec) -> Iterator[Finding]:
    for path, told in retries.findings(spec.retry):
        yield _at("retry", *path), told
    for path, key, value in retries.change_keys(spec.retry):
        try:
            changes.changed(spec, key, value, task=0 if spec.array.tasks else None)
        except changes.CannotChangeError as problem:
            yield (("retry", *path), ("launch",)), str(problem)


def missing_files(spec: jobs.JobSpec, cwd: Path) -> Iterator[Finding]:
    """Give each file of a spec that is not there, and what is wrong with its secrets file.

    Relative paths are seen from the job's folder.
    """
    folder = cwd / (spec.chdir or "")
    if spec.chdir is not None and not os.path.isdir(folder):
        # Slurm itself would start the job in /tmp (measured) and tell it only in the log.
        yield _at("job", "chdir"), f"no such folder: {schema.as_toml(spec.chdir)[1:-1]}"
    for key, text in (("output", spec.output), ("error", spec.error)):
        parent = os.path.dirname(text or "")
        if not text or (not os.path.isabs(parent) and not folder.is_dir()):
            continue
        if "%" not in parent and not os.path.isdir(folder / parent):
            # Slurm 22.05 makes no folders: the job would end at once, without a log. 24.11 makes
            # them where it can, on the node.
            yield _at("job", key), f"no such folder: {schema.as_toml(parent)[1:-1]}"
    image, runtime = spec.container.image, spec.container.runtime
    if image is not None and runtime != "none" and not _URI.match(image):
        is_path = runtime != "pyxis" or image.startswith(("/", "./", "../"))
        if is_path and not os.path.exists(folder / image):
            yield _at("container", "image"), f"no such image: {schema.as_toml(image)[1:-1]}"
    for place, bind in enumerate(spec.container.binds):
        source = bind.partition(":")[0]
        if values.is_bind(bind) and not os.path.exists(source):
            told = f"no such folder or file to bind: {schema.as_toml(source)[1:-1]}"
            yield _at("container", "binds", place), told
    file = spec.environment.secrets_file
    # A path with ~ was refused above.
    if file is not None and not file.startswith("~"):
        for told in secrets.problems(folder / file, file):
            yield _at("environment", "secrets_file"), told

"""Checks of a spec: forms, limits, contradictions. toml/schema.py checks unknown keys and types.

Each check yields (paths, message). The problem is reported at the first path, and only if none of
the paths has a problem already.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator import jobs
from orchestrator.specs import ranks, toml_tables
from orchestrator.toml import schema, values
from orchestrator.toml.key_paths import KeyPath

Finding: TypeAlias = tuple[tuple[KeyPath, ...], str]
_Tables: TypeAlias = Mapping[str, Any]

#: Slurm does not cut a comment, but longer ones belong into a file.
_MAX_COMMENT_BYTES = 1000
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]*")
_LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.*)")
_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+)?|local-[0-9]+")
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://")
#: The log reader can replace these; the others differ by node or task.
_OUTPUT_ESCAPES = frozenset({"%j", "%A", "%a", "%x", "%u", "%%"})
#: Paths are quoted in the script, so the shell does not expand ~.
_PATHS = (
    *(("job", key) for key in ("output", "error", "chdir")),
    *(("environment", key) for key in ("venv", "conda", "fabric", "secrets_file")),
    ("container", "image"),
    ("launch", "script"),
)
#: module, conda, apptainer and torchrun read what begins with a dash as an option.
_NO_DASH = (*_PATHS, ("launch", "module"))
#: Keys that need another one of the same table, and the message.
_NEEDS = (
    ("resources", "gpu_type", ("gpus_per_node", "gres"), "needs gpus_per_node"),
    ("resources", "mem_per_gpu", ("gpus_per_node", "gres"), "needs gpus_per_node or gres"),
    ("array", "max_running", ("tasks", "size"), "needs array.tasks or array.size"),
)


def wrong_values(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Yield the values that are wrong by themselves."""
    for table, record in _tables(spec).items():
        for path, error in schema.value_errors(record):
            key = (table, *path)
            # A missing name has its own message.
            if (key != ("job", "name") or record.name) and (
                key not in toml_tables.OVERRIDING or getattr(record, str(path[0])) != ""
            ):
                yield (key,), error
        for name, value in vars(record).items():
            # Other texts of these tables have a form, or are paths.
            if value == "" and (table not in ("job", "resources") or name == "comment"):
                yield _at(table, name), "is empty: remove the key"

    yield from _plugin_names(spec)


def _plugin_names(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Yield names of launchers and container runtimes that are neither built in nor installed."""
    named = {
        ("launch", "launcher"): spec.launch.launcher,
        ("container", "runtime"): spec.container.runtime,
    }
    for path, name in named.items():
        built_in = schema.choices(schema.hint_at(toml_tables.FILE, path))
        # An empty name is reported already.
        if name in built_in or not name:
            continue
        # Few specs name a plugin.
        from orchestrator import plugins

        kind = plugins.Launcher if path[0] == "launch" else plugins.ContainerRuntime
        if name not in plugins.installed(kind):
            message = plugins.unknown(kind, name, built_in)
            yield (path,), f"{message}. Built in: {', '.join(built_in)}"
            continue
        try:
            plugins.load(kind, name)
        except plugins.PluginError as error:
            yield (path,), str(error)


def findings(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Yield everything else that is wrong with a spec; reads no file."""
    tables = _tables(spec)
    for table_check in (_paths, _combinations):
        yield from table_check(tables)
    for check in (
        *(_job, _names, _container, _launch, _frameworks, _arguments, _array, _retry, _tracking),
    ):
        yield from check(spec)


def _tables(spec: jobs.JobSpec) -> _Tables:
    # The keys of [job] are fields of the spec itself.
    return {name: getattr(spec, name, spec) for name in toml_tables.RECORDS}


def _at(*path: str | int) -> tuple[KeyPath, ...]:
    return (path,)


def _job(spec: jobs.JobSpec) -> Iterator[Finding]:
    if not spec.name:
        yield _at("job", "name"), "is missing: every job needs a name"
    elif _JOB_ID.fullmatch(spec.name):
        # `cancel 7777` must never mean another job than Slurm's 7777.
        yield _at("job", "name"), "looks like a job ID: start it with a letter"
    size = len((spec.comment or "").encode(errors="surrogatepass"))
    if size > _MAX_COMMENT_BYTES:
        yield _at("job", "comment"), f"must be at most {_MAX_COMMENT_BYTES} bytes (got {size})"
    for key, file in (("output", spec.output), ("error", spec.error)):
        if file is not None and (error := output_error(file)):
            yield _at("job", key), error
    keys: set[str] = set()
    for index, label in enumerate(spec.labels):
        match = _LABEL.fullmatch(label)
        if match is None:
            message = f'must be "key=value" (got {schema.as_toml(label)})'
            yield _at("job", "labels", index), message
        elif match[1] in keys:
            yield _at("job", "labels", index), f"sets the key {match[1]} a second time"
        else:
            keys.add(match[1])


def output_error(value: str) -> str:
    """Return why a log with this name cannot be followed; "" if it can."""
    escapes = set(re.findall(r"%(?:.|$)", value))
    # A backslash disables the replacement of % (man sbatch, filename pattern).
    if "\\" in value:
        return "must not contain a backslash: Slurm would not replace any %"
    if unsupported := sorted(escapes - _OUTPUT_ESCAPES):
        return f"must not contain {unsupported[0]}: only %j %A %a %x %u are supported"
    if "%j" not in escapes and not {"%A", "%a"} <= escapes:
        return "must contain %j, or several jobs would write to the same log"
    return ""


def _paths(tables: _Tables) -> Iterator[Finding]:
    for table, key in _NO_DASH:
        value = getattr(tables[table], key) or ""
        if value.startswith("~") and (table, key) in _PATHS:
            yield _at(table, key), "~ is not expanded here: write the whole path"
        if value.startswith("-"):
            yield _at(table, key), f"must not begin with a dash (got {schema.as_toml(value)})"


def _combinations(tables: _Tables) -> Iterator[Finding]:
    reported: set[tuple[str, str]] = set()
    is_batch_file = tables["launch"].batch_file is not None
    for table, alternatives in toml_tables.ALTERNATIVES:
        record = tables[table]
        given = [key for key in alternatives if getattr(record, key) not in (None, "", ())]
        at = table, given[1] if given[1:] else ""
        if given[1:] and at not in reported and not (is_batch_file and table == "launch"):
            reported.add(at)
            yield _at(*at), f"use only one of {' and '.join(given)}"
    for table, key, needed, message in _NEEDS:
        record = tables[table]
        if getattr(record, key) and all(getattr(record, name) in (None, 0) for name in needed):
            yield ((table, key), *((table, other) for other in needed)), message


def _names(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Check the names of variables and options."""
    environment = spec.environment
    for name in environment.variables or ():
        if error := values.variable_name_error(name):
            yield _at("environment", "variables", name), error
    for index, name in enumerate(environment.inherit):
        if error := values.variable_name_error(name):
            yield _at("environment", "inherit", index), error
    if spec.sbatch:
        from orchestrator.specs import sbatch_options

        for key in spec.sbatch:
            if error := sbatch_options.key_error(key):
                yield _at("sbatch", key), error
    if environment.inherit and environment.export == "none":
        paths = ("environment", "inherit"), ("environment", "export")
        yield paths, 'needs export = "all"; with "none" set values in environment.variables'


def _container(spec: jobs.JobSpec) -> Iterator[Finding]:
    container = spec.container
    runtime, image = container.runtime, container.image
    if runtime == "none":
        for key in ("image", "binds", "gpu"):
            if getattr(container, key) not in (None, (), "none"):
                paths = ("container", key), ("container", "runtime")
                yield paths, 'needs a runtime: set container.runtime, such as "apptainer"'
        return
    vendor = spec.resources.gpu_vendor
    if vendor is not None and container.gpu not in (None, "none", jobs.CONTAINER_GPU.get(vendor)):
        paths = ("container", "gpu"), ("resources", "gpu_vendor")
        yield paths, f"does not fit the GPUs of {vendor}: remove it"
    properties = container.properties
    if container.gpu not in (None, "none") and properties.gpu_advice:
        paths = ("container", "gpu"), ("container", "runtime")
        yield paths, f"is not for {runtime}: remove it. {properties.gpu_advice}"
    for index, bind in enumerate(container.binds or ()):
        if bind.endswith(":ro") and not properties.binds_read_only:
            message = f"{runtime} cannot bind read-only: remove :ro, and the job can write there"
            yield _at("container", "binds", index), message
    if image is None:
        yield (("container", "image"), ("container", "runtime")), f"is missing: {runtime} needs one"
    elif properties.url_advice and (match := _URI.match(image)):
        words = {"scheme": match[0], "runtime": runtime, "image": schema.unquoted(image)}
        yield _at("container", "image"), properties.url_advice.format_map(words)
    elif properties.image == "name" and (image[0] in "/." or image.endswith((".sif", ".sqsh"))):
        message = f"is a file, and {runtime} runs images by name: see `{runtime} images`"
        yield _at("container", "image"), message


def _launch(spec: jobs.JobSpec) -> Iterator[Finding]:
    launch, resources = spec.launch, spec.resources
    if launch.batch_file is not None:
        return
    if not (launch.module or launch.script or launch.program or launch.command):
        message = "nothing to run: set module, script or command, or write a program after --"
        yield _at("launch"), message
    if launch.module and not _MODULE.fullmatch(launch.module):
        got = schema.as_toml(launch.module)
        message = f'must be a Python module such as "trainers.train" (got {got})'
        yield _at("launch", "module"), message
    if launch.program and not launch.program[0]:
        yield _at("launch", "program", 0), "is empty: write a program"
    if launch.command is not None and not launch.command.strip():
        yield _at("launch", "command"), "is empty: write a command"
    chosen = ranks.choose(spec)
    if chosen.launcher != "torchrun" and not (launch.command and launch.launcher == "auto"):
        why = f" (auto: {chosen.reason})" if chosen.reason else ""
        for key in ("rendezvous", "nproc_per_node"):
            is_one_rank = launch.launcher == "auto" and ranks.has_ranks(spec)
            if getattr(launch, key) not in ("auto", 1 if is_one_rank else None):
                message = f"needs the launcher torchrun{why}"
                yield (("launch", key), ("launch", "launcher")), message
    elif launch.rendezvous == "standalone" and resources.nodes > 1:
        message = f"standalone is for one node (nodes is {resources.nodes}): use auto or c10d"
        yield (("launch", "rendezvous"), ("resources", "nodes")), message
    if ranks.is_set_by_tasks(spec) and (resources.ntasks or 0) % max(1, resources.nodes):
        message = f"{resources.ntasks} ranks cannot be divided among {resources.nodes} nodes"
        yield (("resources", "ntasks"), ("resources", "nodes")), message
    if launch.launcher != "auto" and ranks.acts_like(launch) == "srun" and not launch.command:
        needed = ("ntasks_per_node", "ntasks", "gpus_per_node")
        if not any(getattr(resources, key) for key in needed) and resources.gres is None:
            paths = ("launch", "launcher"), *(("resources", key) for key in needed)
            advice = "set resources.ntasks_per_node or gpus_per_node"
            yield paths, f"{launch.launcher} needs the ranks: {advice}"


def _frameworks(spec: jobs.JobSpec) -> Iterator[Finding]:
    if ranks.framework_name(spec.launch) is None and spec.resources.nodes == 1:
        return
    # Few specs need it.
    from orchestrator.specs import framework_checks

    yield from framework_checks.findings(spec)


def _arguments(spec: jobs.JobSpec) -> Iterator[Finding]:
    for way in ("command", "program"):
        if spec.args and getattr(spec.launch, way):
            message = f"cannot be combined with launch.{way}: write the arguments after the {way}"
            yield _at("args"), message
    yield from argument_findings(("args",), spec.args)


def argument_findings(
    table: KeyPath, arguments: Mapping[str, jobs.ArgumentValue]
) -> Iterator[Finding]:
    """Yield what is wrong with the names and numbers of arguments."""
    for name, value in arguments.items():
        if not _ARGUMENT.fullmatch(name):
            message = "must be an argument's name without dashes: letters, digits and _ . / : @ -"
            yield _at(*table, name), message
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, float) and not math.isfinite(item):
                yield _at(*table, name), f"must be a finite number (got {item})"


def _array(spec: jobs.JobSpec) -> Iterator[Finding]:
    if spec.array.tasks is None:
        return
    if not spec.array.tasks:
        yield _at("array", "tasks"), "is empty: add a task, or remove the key"
    for way in ("command", "program"):
        if getattr(spec.launch, way):
            message = (
                f"cannot be combined with launch.{way}, which takes no arguments: "
                "set array.size and read $SLURM_ARRAY_TASK_ID there"
            )
            yield _at("array", "tasks"), message
    for index, arguments in enumerate(spec.array.tasks):
        yield from argument_findings(("array", "tasks", index), arguments)


def _tracking(spec: jobs.JobSpec) -> Iterator[Finding]:
    if spec.tracking == jobs.Tracking():
        return
    from orchestrator.trackers import checks

    for path, message in checks.findings(spec.tracking):
        yield _at("tracking", *path), message


def _retry(spec: jobs.JobSpec) -> Iterator[Finding]:
    if spec.retry == jobs.Retry():
        return
    from orchestrator.specs import changes, retry_checks

    for path, message in retry_checks.findings(spec.retry):
        yield _at("retry", *path), message
    for cause, changed in spec.retry.changes.items():
        for key, value in changed.items():
            try:
                changes.changed(spec, key, value, task=0 if spec.array.tasks else None)
            except changes.CannotChangeError as error:
                yield (("retry", "changes", cause, key), ("launch",)), str(error)


def missing_files(
    spec: jobs.JobSpec, cwd: Path, spec_folder: Path | None = None
) -> Iterator[Finding]:
    """Yield each missing file of a spec, and what is wrong with its secrets file.

    Relative paths start in the job's folder. spec_folder: that of the file which names the script.
    """
    folder = cwd / (spec.chdir or "")
    if spec_folder is not None and _is_elsewhere(spec, folder, spec_folder):
        yield (
            _at("launch", "script"),
            f"{spec.launch.script} is not in {folder.absolute()}, where the job starts, but beside "
            f"the spec: cd {shlex.quote(str(spec_folder))} first, or add "
            f"--chdir {shlex.quote(str(spec_folder))}",
        )
    if spec.chdir is not None and not folder.is_dir():
        # Slurm would start the job in /tmp and only mention it in the log (measured).
        yield _at("job", "chdir"), f"no such folder: {schema.unquoted(spec.chdir)}"
    for key, text in (("output", spec.output), ("error", spec.error)):
        parent = os.path.dirname(text or "")
        if not text or "%" in parent or not (os.path.isabs(parent) or folder.is_dir()):
            continue
        if not os.path.isdir(folder / parent):
            # Slurm 22.05 creates no folders: the job would end at once, without a log. 24.11
            # creates them on the node where it can.
            yield _at("job", key), f"no such folder: {schema.unquoted(parent)}"
    image = spec.container.image_path
    if image is not None and spec.container.runtime != "none" and not _URI.match(image):
        if not os.path.exists(folder / image):
            yield _at("container", "image"), f"no such image: {schema.unquoted(image)}"
    for index, bind in enumerate(spec.container.binds or ()):
        source = bind.partition(":")[0]
        if values.is_bind(bind) and not os.path.exists(source):
            message = f"no such folder or file to bind: {schema.unquoted(source)}"
            yield _at("container", "binds", index), message
    file = spec.environment.secrets_file
    # _paths() reports a path with ~.
    if file is not None and not file.startswith("~"):
        from orchestrator.specs import secrets

        for message in secrets.problems(folder / file, file):
            yield _at("environment", "secrets_file"), message


def _is_elsewhere(spec: jobs.JobSpec, folder: Path, spec_folder: Path) -> bool:
    """Return whether the script is missing in the job's folder, but exists beside the spec."""
    script = spec.launch.script
    # A container has its own files, and setup may change the folder.
    if script is None or spec.container.runtime != "none" or spec.environment.setup:
        return False
    return not (folder / script).is_file() and (spec_folder / script).is_file()

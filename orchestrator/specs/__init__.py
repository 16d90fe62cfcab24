"""A job spec: TOML, `--set` and flags into a JobSpec, and everything that is wrong with it at once.

A spec's file lies lowest, then ORCHESTRATOR_* variables, `--set` and the flags (design 2b).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator import errors, jobs
from orchestrator.specs import checks, flags, toml_tables
from orchestrator.toml import documents, key_paths, schema, values

Flag = flags.Flag
FLAGS = flags.FLAGS
seconds = values.seconds

#: Variables that stand for a key of the spec; they beat the file, the command line beats them.
VARIABLES = {
    "ORCHESTRATOR_ACCOUNT": "job.account",
    "ORCHESTRATOR_PARTITION": "job.partition",
    "ORCHESTRATOR_QOS": "job.qos",
}
#: Path of a key, where its value was given, and the value.
Value: TypeAlias = tuple[tuple[str, ...], str, object]

_PYTHON = re.compile(r"python[0-9.]*")


def load(
    path: Path | None,
    settings: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    check_files: bool = True,
    cwd: Path | None = None,
    batch: documents.Document | None = None,
) -> jobs.JobSpec:
    """Return the job that a spec's file and the command line describe; without a file, the latter.

    `batch` is what a batch file says, in place of a spec's file.

    `settings` are `--set`'s KEY=VALUE, `flags` are values by dotted key (none and () are left out),
    `program` is what stands after `--`. Relative paths are seen from `cwd`, the present folder.
    SpecError with every problem there is.
    """
    document, problems = read(path, settings, flags, program, environ=environ, batch=batch)
    return build(document, problems, (cwd or Path()) if check_files else None)


def read(
    path: Path | None,
    settings: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    batch: documents.Document | None = None,
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return all that was said of a job, as `load` takes it, before its keys are looked at.

    With the problems of the command line; SpecError where the file cannot be read.
    """
    problems: list[errors.Problem] = []
    whole = documents.Origin(source="command line" if path is None else str(path))
    document = documents.Document(origins={(): whole})
    if path is not None:
        document, problems = documents.read(path)
        if problems:
            raise errors.SpecError(problems)
    document = batch or document
    layers = (
        [*_variables(environ or {})],
        [_setting(setting, problems) for setting in settings],
        [*_flag_values(flags or {}, problems), (("launch", "program"), "command line", [*program])],
    )
    for layer in layers:
        upper = documents.Document(origins={(): whole})
        for at, source, value in layer:
            if value is not None and value != () and value != []:
                leaf = documents.leaf(at, value, documents.Origin(source=source))
                upper = documents.merge(upper, leaf)
        if upper.data:
            document = over(document, upper)
    if batch is None and _holds(document, "launch.batch_file"):
        told = "is no key of a spec: use `orchestrator submit FILE.sbatch`"
        problems.append(document.problem(("launch", "batch_file"), told))
    return document, problems


def keys_given(
    settings: Sequence[str], flags: Mapping[str, object], environ: Mapping[str, str]
) -> set[str]:
    """Return the dotted keys that the command line and ORCHESTRATOR_* variables say."""
    told = [_setting(setting, [])[0] for setting in settings]
    told += [path for path, _, _ in _variables(environ)]
    return {documents.dotted(path[:2]) for path in told if path} | set(flags)


def to_json(spec: jobs.JobSpec) -> str:
    """Return a spec as JSON, with the tables and keys of its TOML form; from_json takes it back."""
    return json.dumps(toml_tables.to_tables(spec), indent=2)


def from_json(text: str) -> jobs.JobSpec:
    """Return the spec that to_json wrote; SpecError where another version wrote something else."""
    whole = documents.Origin(source="stored spec")
    try:
        data = _filled(json.loads(text))
    except ValueError as error:
        problem = errors.Problem(source=whole.source, message=f"not JSON: {error}")
        raise errors.SpecError([problem]) from error
    document = documents.Document(data=data, origins={(): whole})
    file, wrong = schema.build(document, toml_tables.FILE)
    wrong |= dict(schema.unknown_keys(document, toml_tables.FILE))
    if wrong:
        raise errors.SpecError([document.problem(at, told) for at, told in wrong.items()])
    return toml_tables.to_spec(file)


def _filled(value: Any) -> Any:
    """Return JSON data less its nulls, which TOML does not have."""
    if not isinstance(value, dict):
        return value
    return {key: _filled(inner) for key, inner in value.items() if inner is not None}


def over(lower: documents.Document, upper: documents.Document) -> documents.Document:
    """Lay one layer over another, and take away what it puts out of force.

    Two keys of one layer that contradict each other stay, and are told.
    """
    for key, others in toml_tables.REPLACES.items():
        if _holds(upper, key):
            for other in others:
                if not _holds(upper, other):
                    lower = documents.without(lower, tuple(other.split(".")))
    return documents.merge(lower, upper)


def _holds(document: documents.Document, key: str) -> bool:
    table, _, name = key.partition(".")
    keys = document.data.get(table)
    return isinstance(keys, Mapping) and name in keys


def _variables(environ: Mapping[str, str]) -> Iterator[Value]:
    for name, key in VARIABLES.items():
        if environ.get(name):
            yield tuple(key.split(".")), name, environ[name]


def _setting(setting: str, problems: list[errors.Problem]) -> Value:
    """Return key, source and value of a --set; no value where it cannot be read."""
    try:
        path, end = key_paths.read_key(setting)
    except key_paths.NotTomlError:
        path, end = (), 0
    if not path or setting[end : end + 1] != "=":
        told = f"write KEY=VALUE, such as resources.nodes=2 (got {schema.as_toml(setting)})"
        problems.append(errors.Problem(source="--set", message=told))
        return path, "--set", None
    hint = schema.hint_at(toml_tables.FILE, path)
    return path, "--set", schema.from_text(setting[end + 1 :].strip(), hint)


def _flag_values(given: Mapping[str, object], problems: list[errors.Problem]) -> Iterator[Value]:
    """Give key, source and value of each flag that was used."""
    names = {flag.key: f"--{flag.name}" for flag in FLAGS}
    for key, value in given.items():
        source = names.get(key, "command line")
        path = tuple(key.split("."))
        hint = schema.hint_at(toml_tables.FILE, path)
        if key == "environment.variables" and isinstance(value, list | tuple):
            for pair in value:
                name, equals, text = str(pair).partition("=")
                if equals:
                    yield (*path, name), source, text
                else:
                    told = f"write NAME=VALUE (got {schema.as_toml(name)})"
                    problems.append(errors.Problem(source=source, message=told))
        elif isinstance(value, str) and not schema.fits(value, hint):
            yield path, source, schema.from_text(value, hint)
        else:
            yield path, source, value


def build(
    document: documents.Document, problems: Sequence[errors.Problem], folder: Path | None
) -> jobs.JobSpec:
    """Return the spec of a document; SpecError with the problems given and all that it has.

    Its files are looked for from `folder`; none: not at all.
    """
    problems = list(problems)
    bad: list[key_paths.KeyPath] = []

    def tell(path: key_paths.KeyPath, message: str) -> None:
        problems.append(document.problem(path, message))
        bad.append(path)

    if "sweep" in document.data:
        told = "makes many jobs of this file: use `orchestrator sweep submit` or `sweep render`"
        tell(("sweep",), told)
        document = documents.without(document, ("sweep",))
    for path, message in schema.unknown_keys(document, toml_tables.FILE):
        tell(path, message)
    for path, message in documents.forbidden_characters(document, toml_tables.LINES):
        tell(path, message)
    file, wrong = schema.build(_with_numbers(document), toml_tables.FILE)
    for path, message in wrong.items():
        if path not in bad:
            tell(path, message)
    spec, objections = _normal(toml_tables.to_spec(file))
    found = [*objections, *checks.findings(spec)]
    if folder is not None:
        found.extend(checks.missing_files(spec, folder))
    already = tuple(bad)
    for paths, message in found:
        if not any(_same(path, told) for path in paths for told in already):
            tell(paths[0], message)
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
    return spec


def _same(path: key_paths.KeyPath, told: key_paths.KeyPath) -> bool:
    """Tell whether one of two keys lies within the other."""
    shorter = min(len(path), len(told))
    return path[:shorter] == told[:shorter]


def _with_numbers(document: documents.Document) -> documents.Document:
    for table, key in toml_tables.NUMBERS:
        keys = document.data.get(table)
        value = keys.get(key) if isinstance(keys, Mapping) else None
        if type(value) is int:
            origin = document.origin((table, key))
            leaf = documents.leaf((table, key), str(value), origin)
            document = documents.merge(document, leaf)
    return document


def _normal(spec: jobs.JobSpec) -> tuple[jobs.JobSpec, list[checks.Finding]]:
    """Return the spec in the one form that rendering knows, and what cannot be brought into it."""
    sbatch = {key: value for key, value in spec.sbatch.items() if value is not False}
    launch = spec.launch
    objections: list[checks.Finding] = []
    if launch.launcher == "torchrun" and launch.program and launch.batch_file is None:
        name = os.path.basename(launch.program[0])
        if _PYTHON.fullmatch(name):
            rest = [*launch.program[1:]]
            # torchrun starts Python itself, and with -u.
            while rest[:1] == ["-u"]:
                del rest[0]
            if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
                told = "torchrun starts Python itself: give a script or -m MODULE after it"
                if rest:
                    told += f" and not {schema.as_toml(rest[0])}; or use the launcher python"
                objections.append(((("launch", "program"),), told))
            else:
                launch = dataclasses.replace(launch, program=tuple(rest))
    return dataclasses.replace(spec, launch=launch, sbatch=sbatch), objections

"""From a spec's file and the command line to a JobSpec, with all problems at once.

The layers, the weakest first: file, ORCHESTRATOR_* variables, `--set`, flags.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from orchestrator import errors, jobs
from orchestrator.specs import checks, flags, programs, toml_tables
from orchestrator.toml import documents, key_paths, schema
from orchestrator.toml.key_paths import KeyPath

#: Variables that set a key of the spec.
VARIABLES = {
    "ORCHESTRATOR_ACCOUNT": "job.account",
    "ORCHESTRATOR_PARTITION": "job.partition",
    "ORCHESTRATOR_QOS": "job.qos",
}
_SET = "--set"
_SET_IN_PYTHON = "set"
#: KEY=VALUE of `--set`, or path and value of a key.
Setting: TypeAlias = "str | tuple[KeyPath, object]"
#: Path of a key, where its value was given, and the value.
_Value: TypeAlias = tuple[tuple[str, ...], str, object]


def load(
    path: Path | None,
    settings: Sequence[Setting] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = Path(),
    batch: documents.Document | None = None,
    stored: documents.Document | None = None,
) -> jobs.JobSpec:
    """Return the job that a spec's file and the command line describe.

    settings: of `--set`. flags: values by dotted key; None and () are ignored.
    program: the words after `--`. batch: the content of a batch file, instead of a spec's file.
    stored: the keys of a stored spec, instead of a spec's file; with `batch`, over it.
    folder: start of relative paths, where its files are checked; None: they are not checked.

    Raises SpecError with all problems.
    """
    document, problems = read(
        path, settings, flags, program, environ=environ, batch=batch, stored=stored
    )
    return build(document, problems, folder)


def read(
    path: Path | None,
    settings: Sequence[Setting] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    batch: documents.Document | None = None,
    stored: documents.Document | None = None,
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the merged layers before their keys are checked, and problems of the command line.

    The parameters are those of load(). Raises SpecError if the file cannot be read.
    """
    problems: list[errors.Problem] = []
    document = batch or stored or documents.empty("command line")
    if batch is not None and stored is not None:
        document = documents.merge(batch, stored)
    if path is not None:
        _, document, problems = documents.read(path)
        if problems:
            raise errors.SpecError(problems)
    words = ("launch", "program"), "command line", [*program] or None
    layers: tuple[Iterable[_Value], ...] = (
        _variables(environ or {}),
        (_setting(setting, problems) for setting in settings),
        (*_flag_values(flags or {}, problems), words),
    )
    for layer in layers:
        upper = documents.empty(document.origins[()].source)
        for key, source, value in layer:
            if source in (_SET, _SET_IN_PYTHON) and _is_removal(key, value):
                if batch is not None and document.get(key) is not None:
                    message = "cannot be removed from a batch file: change the file"
                    problems.append(document.problem(key, message))
                document, upper = (documents.without(each, key) for each in (document, upper))
                if value == "" and key not in toml_tables.OVERRIDING:
                    continue
            if value not in (None, ()):
                upper = documents.with_value(upper, key, value, source)
        if upper.data:
            document = over(document, upper)
    key = ("launch", "batch_file")
    if batch is None and document.get(key) is not None:
        message = "is not a key of a spec: use `orchestrator submit FILE.sbatch`"
        problems.append(document.problem(key, message))
    for name in jobs.SET_BY_US:
        if document.get(("code", name)) is not None:
            problems.append(document.problem(("code", name), jobs.SET_BY_US_MESSAGE))
    return document, problems


def keys_given(
    settings: Sequence[Setting], flags: Mapping[str, object], environ: Mapping[str, str]
) -> set[str]:
    """Return the dotted keys set on the command line and by ORCHESTRATOR_* variables."""
    paths = [_setting(setting, [])[0] for setting in settings]
    paths += [path for path, _, _ in _variables(environ)]
    return {documents.dotted(path[:2]) for path in paths if path} | set(flags)


def over(lower: documents.Document, upper: documents.Document) -> documents.Document:
    """Merge two layers, without the keys of the lower one that the upper one replaces.

    Keys of one layer that contradict each other stay, and build() reports them.
    """
    for table, keys in toml_tables.ALTERNATIVES:
        for key in keys:
            if upper.get((table, key)) is not None:
                for replaced in toml_tables.replaced_by((table, key)):
                    if upper.get(replaced) is None:
                        lower = documents.without(lower, replaced)
    return documents.merge(lower, upper)


def _variables(environ: Mapping[str, str]) -> Iterator[_Value]:
    for name, key in VARIABLES.items():
        if environ.get(name):
            yield tuple(key.split(".")), name, environ[name]


def _is_removal(key: tuple[str, ...], value: object) -> bool:
    """Return whether a value of `--set` removes the key: "" of an optional one, or `{}`.

    Tables are joined otherwise.
    """
    is_optional = types.NoneType in schema.kinds_of(schema.hint_at(toml_tables.FILE, key))
    return value == {} or (value == "" and is_optional)


def _setting(setting: Setting, problems: list[errors.Problem]) -> _Value:
    """Return key, source and value of a `--set`; the value None if it cannot be read."""
    if not isinstance(setting, str):
        key, value = setting
        return tuple(map(str, key)), _SET_IN_PYTHON, value
    try:
        path, end = key_paths.read_key(setting)
    except key_paths.NotTomlError:
        path, end = (), 0
    if not path or setting[end : end + 1] != "=":
        message = f"write KEY=VALUE, such as resources.nodes=2 (got {schema.as_toml(setting)})"
        problems.append(errors.Problem(source=_SET, message=message))
        return path, _SET, None
    hint = schema.hint_at(toml_tables.FILE, path)
    return path, _SET, schema.from_text(setting[end + 1 :].strip(), hint)


def _flag_values(
    flag_values: Mapping[str, object], problems: list[errors.Problem]
) -> Iterator[_Value]:
    names = {flag.key: f"--{flag.names[0]}" for flag in flags.FLAGS}
    for key, value in flag_values.items():
        source = names.get(key, "command line")
        path = tuple(key.split("."))
        hint = schema.hint_at(toml_tables.FILE, path)
        if value == "" and path in toml_tables.OVERRIDING:
            # Probably a variable of the shell that is not set.
            message = f"is empty: leave it out, or write --set {key}= to use none"
            problems.append(errors.Problem(source=source, key=key, message=message))
        elif key == "environment.variables" and isinstance(value, list | tuple):
            for pair in value:
                name, equals, text = str(pair).partition("=")
                if equals:
                    yield (*path, name), source, text
                else:
                    message = f"write NAME=VALUE (got {schema.as_toml(name)})"
                    problems.append(errors.Problem(source=source, message=message))
        elif isinstance(value, str) and not schema.fits(value, hint):
            yield path, source, schema.from_text(value, hint)
        else:
            yield path, source, value


def build(
    document: documents.Document, problems: Sequence[errors.Problem], folder: Path | None
) -> jobs.JobSpec:
    """Return the spec of a document. Raises SpecError with `problems` and all its own.

    folder: where its files are checked; None: they are not checked.
    """
    problems = list(problems)
    reported: list[KeyPath] = []

    def report(path: KeyPath, message: str) -> None:
        problems.append(document.problem(path, message))
        reported.append(path)

    if "sweep" in document.data:
        report(
            ("sweep",),
            "this file describes several jobs: use `orchestrator sweep submit` or `sweep render`",
        )
        document = documents.without(document, ("sweep",))
    file, wrong = schema.build(_with_numbers_as_text(document), toml_tables.FILE)
    forbidden = dict(documents.forbidden_characters(document, toml_tables.MULTI_LINE))
    for path, message in {**wrong, **forbidden}.items():
        report(path, message)
    spec = toml_tables.to_spec(file)
    spec = dataclasses.replace(
        spec,
        name=spec.name or programs.name(spec.launch),
        # Options that are off.
        sbatch={key: value for key, value in spec.sbatch.items() if value is not False},
    )
    further = [checks.findings(spec)]
    if folder is not None:
        spec = _with_absolute_fabric(spec, folder)
        file_of_script = Path(document.origin(("launch", "script")).source)
        further.append(checks.missing_files(spec, folder, file_of_script.parent))
    # A wrong value is not checked further.
    for findings in ([*checks.wrong_values(spec)], [*itertools.chain(*further)]):
        unusable = list(reported)
        for paths, message in findings:
            if not any(_contains(path, other) for path in paths for other in unusable):
                report(paths[0], message)
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
    return spec


def _with_absolute_fabric(spec: jobs.JobSpec, folder: Path) -> jobs.JobSpec:
    """Return the spec with the absolute path of its fabric's file: a retry starts elsewhere."""
    fabric = spec.environment.fabric or ""
    if "/" not in fabric or fabric.startswith("~"):
        return spec
    path = os.path.abspath(folder / (spec.chdir or "") / fabric)
    environment = dataclasses.replace(spec.environment, fabric=path)
    return dataclasses.replace(spec, environment=environment)


def _contains(first: KeyPath, second: KeyPath) -> bool:
    """Return whether one of two keys contains the other."""
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def _with_numbers_as_text(document: documents.Document) -> documents.Document:
    for key in toml_tables.NUMBERS:
        if type(value := document.get(key)) is int:
            document = documents.with_value(document, key, str(value), document.origin(key))
    return document

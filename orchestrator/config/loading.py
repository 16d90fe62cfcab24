"""Loading the configuration: the layers, their merge, and all problems at once.

command line > ORCHESTRATOR_* > (spec) > project `orchestrator.toml` > user > site > defaults.
An untrusted project's file may only describe jobs. Creates no file and no folder.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs
from orchestrator.config import (
    channels,
    database_urls,
    file_schema,
    paths,
    profiles,
    projects,
)
from orchestrator.text import escaping
from orchestrator.toml import documents, schema
from orchestrator.toml.key_paths import KeyPath

_SETTINGS = (
    *(*paths.FOLDERS, *paths.FOLDER_LISTS, *paths.FILE_LISTS, *paths.FILES, "metrics_file_mode"),
    *("database", "profile"),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One key and its origin, for `config show --origin`."""

    #: dotted
    key: str
    value: object
    #: FILE:LINE, a variable, a flag or "default"
    origin: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """The effective configuration; file_schema.File describes its keys."""

    state_dir: Path
    runs_dir: Path
    templates_dir: Path | None
    shared_folders: tuple[Path, ...] = ()
    #: with files of fabrics, those of the user first
    fabric_folders: tuple[Path, ...] = ()
    #: SQLAlchemy's URL
    database: str
    profile: profiles.Profile
    pattern_files: tuple[Path, ...] = ()
    metrics_file: Path | None = None
    #: of the permission bits
    metrics_file_mode: int = 0o600
    #: receivers of notifications, by name
    notices: Mapping[str, channels.Channel] = dataclasses.field(default_factory=dict)
    #: limits of plans
    agents: file_schema.Agents = dataclasses.field(default_factory=file_schema.Agents)
    #: which nodes jobs avoid
    nodes: file_schema.Nodes = dataclasses.field(default_factory=file_schema.Nodes)
    #: what the controller sends to trackers
    tracking: file_schema.Tracking = dataclasses.field(default_factory=file_schema.Tracking)
    #: for `--host`, by name
    hosts: Mapping[str, file_schema.Host] = dataclasses.field(default_factory=dict)
    #: all keys with their origins
    document: documents.Document = dataclasses.field(
        default_factory=lambda: documents.empty("default")
    )
    #: the nearest project's file, read or not
    project: projects.Project | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the user about how the configuration was read."""
        return (self.project.note,) if self.project and self.project.note else ()

    @property
    def patterns(self) -> documents.Document:
        """The patterns written in the configuration itself."""
        return dataclasses.replace(self.document, data=self.document.data.get("pattern", {}))

    @property
    def origins(self) -> list[Setting]:
        """All keys in force, the settings first and then the profile's."""
        return list(_origins(self))


def load(
    environ: Mapping[str, str],
    cwd: Path,
    overrides: Mapping[str, object] | None = None,
    *,
    with_project: bool = True,
) -> Configuration:
    """Return the configuration for this folder.

    overrides: of the command line, `runs_dir`, `profile`, `gres_style` ...; None is ignored.
    with_project: False ignores the project's file.

    Raises ConfigurationError with all problems; ProjectRefusedError if an untrusted project's file
    sets keys that need trust.
    """
    given, problems = paths.with_absolute_paths(_given(environ, overrides or {}), cwd, environ)
    problems += _relative_folders(environ)
    # The strongest first: stronger layers accept the shared folders of the weaker ones.
    layers: list[documents.Document] = []
    for path in (paths.user_file(environ), *paths.site_files(environ)):
        if not os.path.lexists(path):
            continue
        if problem := paths.exposure_problem(path, _shared_folders(given, *layers), environ):
            problems.append(problem)
            continue
        _, layer, syntax_problems = documents.read(path)
        layer, path_problems = paths.with_absolute_paths(layer, path.parent, environ)
        problems += [*syntax_problems, *path_problems]
        layers.append(layer)
    project = None
    if with_project and (nearest := paths.project_file(cwd)):
        project = projects.read(nearest, environ, _shared_folders(given, *layers))
        problems += project.problems
        layers.insert(0, project.document)
    document = documents.empty("default")
    for layer in reversed(layers):
        document = documents.merge(document, layer)
    name = _profile_name(document, given, problems)
    # Profile keys of variables and the command line apply to the chosen profile.
    for key_path, origin in given.origins.items():
        if key_path:
            key = str(key_path[0])
            target = (key,) if key in _SETTINGS else ("profiles", name, key)
            document = documents.with_value(document, target, given.data[key], origin)
    file, key_problems = _build(document)
    problems += key_problems
    configuration = _configuration(file, name, document, environ)
    problems += _folder_problems(configuration, file)
    configuration = dataclasses.replace(configuration, project=project.project if project else None)
    if problems:
        if project is not None and project.project.ignored:
            # The ignored file may contain what is missing.
            problems.append(errors.Problem(source="", message=project.project.note))
        in_order = sorted(problems, key=lambda problem: (problem.source, problem.line or 0))
        if project is not None and project.refused:
            raise projects.RefusedError(in_order, project)
        raise errors.ConfigurationError(in_order)
    return configuration


def shared_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders accepted by ORCHESTRATOR_SHARED_FOLDERS, before any file is read."""
    return _shared_folders(paths.with_absolute_paths(_given(environ, {}), Path("/"), environ)[0])


def _shared_folders(*strongest_first: documents.Document) -> list[Path]:
    for document in strongest_first:
        if (folders := document.data.get("shared_folders")) is not None:
            texts = folders if isinstance(folders, list) else []
            return [Path(folder) for folder in texts if isinstance(folder, str)]
    return []


def _given(environ: Mapping[str, str], overrides: Mapping[str, object]) -> documents.Document:
    """Return variables and the command line as a document; a profile's keys are at the top."""
    document = documents.empty("default")
    for key, (variable, hint) in file_schema.variables().items():
        if text := environ.get(variable):
            value: object = schema.from_text(text, hint)
            if key in paths.FOLDER_LISTS:
                value = [folder for folder in text.split(":") if folder]
            document = documents.with_value(document, (key,), value, variable)
    for key, value in overrides.items():
        if value is not None:
            value = str(value) if isinstance(value, Path) else value
            option = "--" + key.replace("_", "-")
            document = documents.with_value(document, (key,), value, option)
    return document


def _relative_folders(environ: Mapping[str, str]) -> Iterator[errors.Problem]:
    """Yield problems of folder lists in variables that depend on the current folder."""
    for key in paths.FOLDER_LISTS:
        variable = file_schema.variables()[key][0]
        for folder in environ.get(variable, "").split(":"):
            if folder and not folder.startswith(("/", "~")):
                got = schema.as_toml(folder)
                message = f"must be absolute paths separated by colons (got {got})"
                yield errors.Problem(source=variable, key=key, message=message)


def _profile_name(
    document: documents.Document, given: documents.Document, problems: list[errors.Problem]
) -> str:
    """Return the chosen profile, else the only one, else the built-in one."""
    tables = document.data.get("profiles")
    names = list(tables) if isinstance(tables, Mapping) else []
    source = given if "profile" in given.data else document
    chosen = source.data.get("profile")
    if not isinstance(chosen, str):
        return names[0] if len(names) == 1 else profiles.BUILT_IN
    if chosen not in names and (chosen != profiles.BUILT_IN or names):
        message = f"no profile {schema.as_toml(chosen)}. {schema.advice(chosen, names)}"
        problems.append(source.problem(("profile",), escaping.visible(message)))
    return chosen


def _build(document: documents.Document) -> tuple[file_schema.File, list[errors.Problem]]:
    """Return the keys of the merged layers, and the first problem of each."""
    file, wrong = schema.build(document, file_schema.File)
    problems: dict[KeyPath, errors.Problem] = {}
    for path, message in (
        *documents.forbidden_characters(document),
        *wrong.items(),
        *_findings(file),
    ):
        problem = document.problem(path, message)
        if _is_secret(path):
            problem = dataclasses.replace(problem, text="")
        problems.setdefault(path, problem)
    return file, list(problems.values())


def _findings(file: file_schema.File) -> Iterator[profiles.Finding]:
    if file.database is not None and not file.database.startswith(
        ("sqlite:////", "postgresql://", "postgresql+")
    ):
        yield ("database",), "must be sqlite:////ABSOLUTE/PATH or postgresql://..."
    for key, hours in vars(file.agents).items():
        if hours is not None and not 0 <= hours < math.inf:
            yield ("agents", key), f"must be >= 0 (got {hours})"
    for path, error in schema.value_errors(file.nodes):
        yield ("nodes", *path), error
    for path, error in schema.value_errors(file.tracking):
        yield ("tracking", *path), error
    if "tensorboard" in file.tracking.export and file.tracking.export_dir is None:
        yield ("tracking", "export_dir"), "is missing: the folder for TensorBoard"
    for key in ("export_dir", "python"):
        path = getattr(file.tracking, key)
        if path is not None and not path.startswith("/"):
            yield ("tracking", key), f"must be an absolute path (got {schema.as_toml(path)})"
    if file.tracking.mlflow_uri is not None:
        # Few configurations have it, and `submit` loads this module.
        from orchestrator.trackers import checks

        if error := checks.uri_error(file.tracking.mlflow_uri):
            yield ("tracking", "mlflow_uri"), error
    tables = (("profiles", file.profiles), ("notices", file.notices), ("hosts", file.hosts))
    for table, names in tables:
        for name in names:
            if not _NAME.fullmatch(name):
                yield (table, name), "must be a name of letters, digits and _ . -"
    for name, profile in file.profiles.items():
        if profile.name != profiles.BUILT_IN:
            yield ("profiles", name, "name"), "is the table's own name: remove it"
        yield from profiles.findings(profile, ("profiles", name))
    for name, channel in file.notices.items():
        yield from channels.findings(channel, ("notices", name))
    for name, host in file.hosts.items():
        # Few configurations have hosts, and `submit` loads this module.
        from orchestrator.config import hosts

        yield from hosts.findings(host, ("hosts", name))


def _configuration(
    file: file_schema.File,
    profile_name: str,
    document: documents.Document,
    environ: Mapping[str, str],
) -> Configuration:
    """Return the configuration without the project."""
    default = paths.xdg(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator"
    state_dir = file.state_dir or str(default)
    profile = file.profiles.get(profile_name, profiles.Profile())
    return Configuration(
        state_dir=Path(state_dir),
        # Not below the state: compute nodes see the home folder, but often no local disk.
        runs_dir=Path(file.runs_dir or paths.home(environ) / "orchestrator-runs"),
        templates_dir=Path(file.templates_dir) if file.templates_dir else None,
        shared_folders=tuple(map(Path, file.shared_folders)),
        fabric_folders=paths.fabric_folders(environ),
        database=file.database or f"sqlite:///{state_dir}/orchestrator.db",
        profile=dataclasses.replace(profile, name=profile_name),
        pattern_files=tuple(map(Path, file.pattern_files)),
        metrics_file=Path(file.metrics_file) if file.metrics_file else None,
        metrics_file_mode=int(file.metrics_file_mode, 8),
        notices=file.notices,
        agents=file.agents,
        nodes=file.nodes,
        tracking=file.tracking,
        hosts=file.hosts,
        document=document,
    )


def _folder_problems(
    configuration: Configuration, file: file_schema.File
) -> Iterator[errors.Problem]:
    problem = configuration.document.problem
    runs_dir, templates_dir = str(configuration.runs_dir), configuration.templates_dir
    if file.database is None and "?" in str(configuration.state_dir):
        message = "must not contain ?: it would end the path in the database's URL"
        yield problem(("state_dir",), message)
    if "\\" in runs_dir or "%" in runs_dir:
        # sbatch's --output interprets them (a backslash even switches off %j: measured).
        message = "must not contain backslash or %: Slurm would write logs elsewhere"
        yield problem(("runs_dir",), f"{message} (got {runs_dir})")
    if templates_dir and not templates_dir.is_dir():
        yield problem(("templates_dir",), f"no such folder: {templates_dir}")


def _is_secret(path: KeyPath) -> bool:
    # A database's URL may contain a password, and whoever knows a webhook's URL can post there.
    return path == ("database",) or (path[:1] == ("notices",) and path[-1:] == ("url",))


def _origins(configuration: Configuration) -> Iterator[Setting]:
    origins, profile = configuration.document.origins, configuration.profile

    def setting(path: KeyPath, value: object) -> Setting:
        origin = str(origins[path]) if path in origins else "default"
        return Setting(key=documents.dotted(path), value=value, origin=origin)

    def below(value: Any, path: KeyPath) -> Iterator[Setting]:
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                if isinstance(value, jobs.Code) and field.name in jobs.SET_BY_US:
                    continue
                yield from below(getattr(value, field.name), (*path, field.name))
        elif isinstance(value, Mapping) and value:
            for name, inner in value.items():
                if isinstance(inner, Mapping):
                    # Such as `[retry.changes.CAUSE]`: one value.
                    yield setting((*path, name), inner)
                else:
                    yield from below(inner, (*path, name))
        elif _is_secret(path) and isinstance(value, str):
            yield setting(path, channels.shown_url(value))
        elif path != ("profiles", profile.name, "name"):
            yield setting(path, value)

    for key in _SETTINGS:
        value = getattr(configuration, key)
        if key == "profile":
            value = profile.name
        elif key == "metrics_file_mode":
            value = f"{configuration.metrics_file_mode:04o}"
        # `config show` is copied into mails and issues.
        if key == "database":
            value = database_urls.without_password(configuration.database)
        yield setting((key,), value)
    yield from below(configuration.agents, ("agents",))
    yield from below(configuration.nodes, ("nodes",))
    yield from below(configuration.tracking, ("tracking",))
    yield from below(profile, ("profiles", profile.name))
    for table in ("notices", "hosts"):
        if getattr(configuration, table):
            yield from below(getattr(configuration, table), (table,))

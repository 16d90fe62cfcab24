"""Settings and cluster profiles: from the command line down to the site's file.

command line > ORCHESTRATOR_* > (spec) > project `orchestrator.toml` > user > site > defaults.
Of a project's file only what says what a job is counts, unless the user trusts it. Reads only;
makes no file and no folder.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs
from orchestrator.config import channels, database_urls, file_schema, paths, profiles, projects
from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, schema

Channel = channels.Channel
Partition = profiles.Partition
Profile = profiles.Profile
Project = projects.Project
ProjectRefusedError = projects.RefusedError
refuse_changed = projects.refuse_changed
has_password = database_urls.has_password
without_password = database_urls.without_password

_SETTINGS = (*paths.PATHS, *paths.FOLDER_LISTS, *paths.FILES, "database", "profile")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One key in force and where it comes from, for `config show --origin`."""

    #: dotted, as it would be written
    key: str
    value: object
    #: FILE:LINE, a variable, a flag or "default"
    origin: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """Everything in force."""

    #: holds the database; on a local disk if it can be
    state_dir: Path
    #: holds the run folders; must be seen from the compute nodes
    runs_dir: Path
    #: a user's own template blocks
    templates_dir: Path | None
    #: folders in which other owners and group members may write, and which the user accepts
    shared_folders: tuple[Path, ...] = ()
    #: SQLAlchemy's URL
    database: str
    profile: Profile
    #: TOML files of patterns, and patterns that stand in the configuration itself
    pattern_files: tuple[Path, ...] = ()
    patterns: documents.Document = dataclasses.field(
        default_factory=lambda: documents.Document(origins={(): documents.Origin(source="default")})
    )
    #: who is told of what, by name
    notices: Mapping[str, Channel] = dataclasses.field(default_factory=dict)
    #: that were read, the weakest first
    files: tuple[Path, ...]
    origins: tuple[Setting, ...]
    #: the project's file that was found, be it read or not
    project: Project | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told once about how the configuration was read."""
        return (self.project.note,) if self.project and self.project.note else ()


def load(
    environ: Mapping[str, str],
    cwd: Path,
    overrides: Mapping[str, object] | None = None,
    *,
    with_project: bool = True,
) -> Configuration:
    """Return the configuration in force in this folder.

    `overrides` is the command line's: `runs_dir`, `profile`, `gres_style` ... with none left out.
    with_project: False leaves the project's file out.

    ConfigurationError with every problem there is; ProjectRefusedError where the project's file
    sets what only a trusted one may set.
    """
    given, problems = paths.with_whole_paths(_given(environ, overrides or {}), cwd, environ)
    problems += _not_absolute(environ)
    # From the strongest to the weakest: those above say which shared folders are accepted.
    layers: list[documents.Document] = []
    files: list[Path] = []
    for path in (paths.user_file(environ), *paths.site_files(environ)):
        if not os.path.lexists(path):
            continue
        if problem := paths.not_safe(path, _shared_folders(given, *layers), environ):
            problems.append(problem)
            continue
        layer, unread = documents.read(path)
        layer, found = paths.with_whole_paths(layer, path.parent, environ)
        problems += [*unread, *found]
        files.insert(0, path)
        layers.append(layer)
    project = None
    if with_project and (nearest := paths.project_file(cwd)):
        project = projects.read(nearest, environ, _shared_folders(given, *layers))
        problems += project.problems
        files += [] if project.project.ignored else [nearest]
        layers.insert(0, project.document)
    document = documents.Document(origins={(): documents.Origin(source="default")})
    for layer in reversed(layers):
        document = documents.merge(document, layer)
    return _configuration(document, given, problems, tuple(files), environ, project)


def shared_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders that ORCHESTRATOR_SHARED_FOLDERS accepts, before any file is read."""
    return _shared_folders(paths.with_whole_paths(_given(environ, {}), Path("/"), environ)[0])


def _shared_folders(*strongest_first: documents.Document) -> list[Path]:
    for document in strongest_first:
        if (folders := document.data.get("shared_folders")) is not None:
            named = folders if isinstance(folders, list) else []
            return [Path(folder) for folder in named if isinstance(folder, str)]
    return []


def with_profile(spec: jobs.JobSpec, configuration: Configuration) -> jobs.JobSpec:
    """Return the spec with what it leaves open taken from the profile in force.

    SpecError where it asks for more than its partition has.
    """
    return profiles.fill(spec, configuration.profile)


def _given(environ: Mapping[str, str], overrides: Mapping[str, object]) -> documents.Document:
    """Return what variables and the command line say; a profile's keys stand at the top."""
    document = documents.Document(origins={(): documents.Origin(source="default")})
    for key, hint in file_schema.variable_hints().items():
        variable = file_schema.variable(key)
        if text := environ.get(variable):
            if key in paths.FOLDER_LISTS:
                value: object = [folder for folder in text.split(":") if folder]
            else:
                value = schema.from_text(text, hint)
            origin = documents.Origin(source=variable)
            document = documents.merge(document, documents.leaf((key,), value, origin))
    for key, value in overrides.items():
        if value is not None:
            origin = documents.Origin(source="--" + key.replace("_", "-"))
            if isinstance(value, Path):
                value = str(value)
            document = documents.merge(document, documents.leaf((key,), value, origin))
    return document


def _not_absolute(environ: Mapping[str, str]) -> Iterator[errors.Problem]:
    """Give the lists of folders in variables that depend on the current folder."""
    for key in paths.FOLDER_LISTS:
        variable = file_schema.variable(key)
        for folder in environ.get(variable, "").split(":"):
            if folder and not folder.startswith(("/", "~")):
                message = (
                    f"must be absolute paths with colons between (got {schema.as_toml(folder)})"
                )
                yield errors.Problem(source=variable, key=key, message=message)


def _configuration(
    files_document: documents.Document,
    given: documents.Document,
    problems: list[errors.Problem],
    files: tuple[Path, ...],
    environ: Mapping[str, str],
    project: projects.Layer | None,
) -> Configuration:
    name = _profile_name(files_document, given, problems)
    # What variables and the command line say of a profile holds for the one that was chosen.
    document = files_document
    for path, origin in given.origins.items():
        if path:
            key = str(path[0])
            whole = path if key in _SETTINGS else ("profiles", name, key)
            leaf = documents.leaf(tuple(map(str, whole)), given.data[key], origin)
            document = documents.merge(document, leaf)
    found = [
        *schema.unknown_keys(document, file_schema.File),
        *documents.forbidden_characters(document),
    ]
    file, wrong = schema.build(document, file_schema.File)
    found.extend(wrong.items())
    found.extend(_findings(file))
    seen: set[key_paths.KeyPath] = set()
    for path, message in found:
        if path not in seen:
            seen.add(path)
            problem = document.problem(path, message)
            shown = dataclasses.replace(problem, text="") if _is_secret(path) else problem
            problems.append(shown)
    profile = dataclasses.replace(file.profiles.get(name, Profile()), name=name)
    home = paths.home(environ)
    default = paths.xdg(environ, "XDG_STATE_HOME", ".local/state") / "orchestrator"
    state = Path(file.state_dir or default)
    if file.database is None and "?" in str(state):
        told = "must hold no ?: it would end the path in the database's URL"
        problems.append(document.problem(("state_dir",), told))
    runs = file.runs_dir or str(home / "orchestrator-runs")
    if "\\" in runs or "%" in runs:
        # sbatch's --output reads them as its own (a backslash even switches off %j: measured).
        told = f"must hold no backslash and no %: Slurm would put the logs elsewhere (got {runs})"
        problems.append(document.problem(("runs_dir",), told))
    if file.templates_dir and not Path(file.templates_dir).is_dir():
        told = f"no such folder: {file.templates_dir}"
        problems.append(document.problem(("templates_dir",), told))
    if problems:
        if project is not None and project.project.ignored:
            # What is missing may stand in it.
            problems.append(errors.Problem(source="", message=project.project.note))
        in_order = sorted(problems, key=lambda problem: (problem.source, problem.line or 0))
        if project is not None and project.refused:
            raise ProjectRefusedError(in_order, project)
        raise errors.ConfigurationError(in_order)
    configuration = Configuration(
        state_dir=state,
        # Not below the state: compute nodes see the home folder, and often no local disk.
        runs_dir=Path(runs),
        templates_dir=Path(file.templates_dir) if file.templates_dir else None,
        shared_folders=tuple(map(Path, file.shared_folders)),
        database=file.database or f"sqlite:///{state}/orchestrator.db",
        profile=profile,
        pattern_files=tuple(map(Path, file.pattern_files)),
        patterns=dataclasses.replace(document, data=file.pattern),
        notices=file.notices,
        files=files,
        origins=(),
        project=project.project if project else None,
    )
    origins = tuple(_origins(configuration, document))
    return dataclasses.replace(configuration, origins=origins)


def _profile_name(
    document: documents.Document, given: documents.Document, problems: list[errors.Problem]
) -> str:
    """Return the profile that was chosen, else the only one there is, else the built-in one."""
    tables = document.data.get("profiles")
    names = list(tables) if isinstance(tables, Mapping) else []
    source = given if "profile" in given.data else document
    chosen = source.data.get("profile")
    if not isinstance(chosen, str):
        return names[0] if len(names) == 1 else profiles.BUILT_IN
    if chosen not in names and (chosen != profiles.BUILT_IN or names):
        near = schema.did_you_mean(chosen, names)
        known = ", ".join(sorted(names)) or "none"
        advice = f'Did you mean "{near}"?' if near else f"Known: {known}."
        told = f"no profile {schema.as_toml(chosen)}. {advice}"
        problems.append(source.problem(("profile",), escaping.visible(told)))
    return chosen


def _findings(file: file_schema.File) -> Iterator[profiles.Finding]:
    if file.database is not None and not file.database.startswith(
        ("sqlite:////", "postgresql://", "postgresql+")
    ):
        yield ("database",), "must be sqlite:////ABSOLUTE/PATH or postgresql://..."
    for name, profile in file.profiles.items():
        at = ("profiles", name)
        if not _NAME.fullmatch(name):
            yield at, "must be a name of letters, digits and _ . -"
        if profile.name != profiles.BUILT_IN:
            yield (*at, "name"), "is the table's own name: leave it out"
        yield from profiles.findings(profile, at)
    for name, channel in file.notices.items():
        if not _NAME.fullmatch(name):
            yield ("notices", name), "must be a name of letters, digits and _ . -"
        yield from channels.findings(channel, ("notices", name))


def _is_secret(path: key_paths.KeyPath) -> bool:
    # A database's URL may hold a password, and who knows a webhook's writes there: the line of such
    # a key is not shown.
    return path == ("database",) or (path[:1] == ("notices",) and path[-1:] == ("url",))


def _origins(configuration: Configuration, document: documents.Document) -> Iterator[Setting]:
    """Give every key in force, the settings first and then the profile's."""

    def setting(path: key_paths.KeyPath, value: object) -> Setting:
        known = path in document.origins
        origin = str(document.origins[path]) if known else "default"
        return Setting(key=documents.dotted(path), value=value, origin=origin)

    for key in _SETTINGS:
        value = getattr(configuration, key)
        if key == "profile":
            value = configuration.profile.name
        # `config show` ends up in mails and issues.
        if key == "database":
            value = without_password(configuration.database)
        yield setting((key,), value)

    def below(record: Any, at: key_paths.KeyPath) -> Iterator[Setting]:
        for field in dataclasses.fields(record):
            value, path = getattr(record, field.name), (*at, field.name)
            if isinstance(value, Mapping) and value:
                for name, inner in value.items():
                    if dataclasses.is_dataclass(inner):
                        yield from below(inner, (*path, name))
                    else:
                        yield setting((*path, name), inner)
            elif dataclasses.is_dataclass(value):
                yield from below(value, path)
            elif _is_secret(path) and isinstance(value, str):
                yield setting(path, channels.shown_url(value))
            elif path != ("profiles", configuration.profile.name, "name"):
                yield setting(path, value)

    yield from below(configuration.profile, ("profiles", configuration.profile.name))
    for name, channel in configuration.notices.items():
        yield from below(channel, ("notices", name))

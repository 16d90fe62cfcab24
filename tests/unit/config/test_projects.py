"""Which keys a project file may set, and when it is read. Files of other users require root."""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from orchestrator import config, errors
from orchestrator.config import file_schema, projects, trust
from orchestrator.toml import documents, schema

EVE = 4711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of another")
#: All keys that describe a job. New keys of the configuration are not among them.
ALLOWED = {"profile", "profiles", "pattern", "pattern_files"}
ALLOWED_IN_A_PROFILE = {
    *("account", "partition", "qos", "gres_style", "modules", "binds"),
    *("partitions", "alerts", "retry", "code"),
}
REST = """\
A project's file may only describe jobs. Move these keys to \
{home}/.config/orchestrator/config.toml, or review the file{changed} and run \
`orchestrator trust {folder}`."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "site")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(mode=0o700)
    return folder


def write(project: Path, text: str) -> Path:
    path = project / "orchestrator.toml"
    path.write_text(text)
    return path


def refusal(environ: Mapping[str, str], project: Path) -> str:
    with pytest.raises(config.ProjectRefusedError) as caught:
        config.load(environ, project)
    assert caught.value.exit_code == 3
    return str(caught.value)


def rest(environ: Mapping[str, str], project: Path, changed: str = "") -> str:
    return REST.format(home=environ["HOME"], folder=project, changed=changed)


def trusted(environ: Mapping[str, str], project: Path) -> None:
    path = project / "orchestrator.toml"
    trust.record(environ, path, projects.review(path, environ).digest)


def sample(hint: Any) -> object:
    """Return a value of this type."""
    hint = schema.bare(hint)
    if schema.is_choice(hint):
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        return ["x"]
    if dataclasses.is_dataclass(hint) or typing.get_origin(hint) is not None:
        return {}
    return {str: "x", int: 1, bool: True}[hint]


def test_keys_that_do_not_describe_jobs_are_refused() -> None:
    for record, allowed, at in (
        (file_schema.File, ALLOWED, ()),
        (config.Profile, ALLOWED_IN_A_PROFILE, ("profiles", "a")),
    ):
        hints = schema.fields_of(record)
        assert allowed <= set(hints)
        for key, hint in hints.items():
            document = documents.with_value(documents.empty("x"), (*at, key), sample(hint), "x")
            paths = [path for path, _ in projects.needing_trust(document, Path("/"))]
            assert paths == ([] if key in allowed else [(*at, key)])


@hypothesis.example({"pattern_files": ["\0"]})
@hypothesis.settings(max_examples=25)
@hypothesis.given(
    strategies.dictionaries(
        strategies.text() | strategies.sampled_from(sorted(schema.fields_of(file_schema.File))),
        strategies.recursive(
            strategies.integers() | strategies.text(),
            lambda inner: (
                strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_other_key_is_refused(data: dict[str, Any]) -> None:
    document = documents.of(data, "x")
    result = {path[0] for path, _ in projects.needing_trust(document, Path("/"))}
    assert set(data) - ALLOWED <= result <= set(data)


def test_keys_that_describe_jobs_apply(environ: dict[str, str], project: Path) -> None:
    (project / "patterns.toml").touch()
    path = write(
        project,
        """\
profile = "b"
pattern_files = ["patterns.toml"]
[pattern.x]
[profiles.a]
[profiles.b]
account = "proj"
partition = "gpu"
qos = "normal"
gres_style = "gres"
modules = ["NRIS/GPU", "PyTorch/2.6"]
binds = ["/data:/data:ro"]
partitions = { gpu = { max_time = "1-00" } }
alerts = { stalled_minutes = 5 }
[profiles.b.retry]
max_retries = 2
[profiles.b.retry.changes.oom_host]
"resources.mem" = "x2"
"args.batch_size" = 8
"job.time_limit" = "x2"
""",
    )
    configuration = config.load(environ, project)
    assert configuration.profile.account == "proj" and configuration.profile.retry.max_retries == 2
    assert configuration.pattern_files == (project / "patterns.toml",)
    assert configuration.project == config.Project(path=path)
    assert (configuration.project.standing, configuration.notes) == ("not trusted", ())


def test_refused_keys_are_listed_with_advice(environ: dict[str, str], project: Path) -> None:
    path = write(
        project,
        """\
state_dir = ".state"
databse = "x"
database = "postgresql://ada:s3cret@host/db"
pattern_files = ["good.toml", "../other.toml"]
templates_dir = "$NOT_SET/t"
[notices.chat]
kind = "webhook"
url = "https://host/s3cret"
[profiles.a]
variables = { BASH_ENV = "/x" }
modules = ["a/../../x"]
local_kill_wait_seconds = 1
[profiles.a.retry]
max_retries = 1
[profiles.a.retry.changes.oom_host]
"environment.variables.LD_PRELOAD" = "/x"
""",
    )
    assert refusal(environ, project) == "\n".join(
        [
            f"{path}:1: state_dir: not allowed in a project's file; set the variable "
            "ORCHESTRATOR_STATE_DIR instead",
            '    1 | state_dir = ".state"',
            f'{path}:2: databse: unknown key. Did you mean "database"?',
            '    2 | databse = "x"',
            f"{path}:3: database: not allowed in a project's file; set the variable "
            "ORCHESTRATOR_DATABASE instead",
            f"{path}:4: pattern_files: is outside the project, which is not allowed in a "
            "project's file",
            '    4 | pattern_files = ["good.toml", "../other.toml"]',
            f"{path}:5: templates_dir: not allowed in a project's file; set the variable "
            "ORCHESTRATOR_TEMPLATES_DIR instead",
            '    5 | templates_dir = "$NOT_SET/t"',
            f"{path}:6: notices.chat: not allowed in a project's file",
            f"{path}:10: profiles.a.variables: not allowed in a project's file",
            '    10 | variables = { BASH_ENV = "/x" }',
            f"{path}:11: profiles.a.modules: names a module by its path, not allowed in a "
            "project's file",
            '    11 | modules = ["a/../../x"]',
            f"{path}:12: profiles.a.local_kill_wait_seconds: not allowed in a project's file; "
            "set the variable ORCHESTRATOR_LOCAL_KILL_WAIT_SECONDS instead",
            "    12 | local_kill_wait_seconds = 1",
            f'{path}:16: profiles.a.retry.changes.oom_host."environment.variables.LD_PRELOAD": '
            "not allowed in a project's file",
            '    16 | "environment.variables.LD_PRELOAD" = "/x"',
            "10 problems; nothing was done.",
            rest(environ, project),
        ]
    )
    # doctor continues without the file.
    assert config.load(environ, project, with_project=False).project is None


@pytest.mark.parametrize("module", ["/x/y", "./x", "../x", "~/x", ".x", "x/../y"])
def test_a_module_by_its_path_is_refused(
    environ: dict[str, str], project: Path, module: str
) -> None:
    write(project, f"[profiles.a]\nmodules = [{json.dumps(module)}]\n")
    assert "profiles.a.modules: names a module by its path" in refusal(environ, project)


def test_a_pattern_file_that_is_a_link_out_of_the_project_is_refused(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x = 1")
    (project / "link.toml").symlink_to(tmp_path / "secret")
    write(project, 'pattern_files = ["link.toml"]')
    assert "pattern_files: is outside the project" in refusal(environ, project)


def test_a_trusted_file_sets_everything_until_something_changes(
    environ: dict[str, str], project: Path
) -> None:
    templates = project / "templates"
    templates.mkdir()
    (templates / "a.j2").write_text("a")
    (project / "notify.sh").write_text("echo")
    (project / "p.toml").write_text("")
    text = (
        'state_dir = ".state"\ntemplates_dir = "templates"\npattern_files = ["p.toml"]\n'
        '[notices.x]\nkind = "command"\ncommand = ["bash", "notify.sh"]\n'
    )
    path = write(project, text)
    review = projects.review(path, environ)
    assert review.settings == [
        (("state_dir",), f"{project}/.state"),
        (("templates_dir",), str(templates)),
        (("notices", "x", "kind"), "command"),
        (("notices", "x", "command"), ["bash", "notify.sh"]),
    ]
    assert review.named == [project / "notify.sh", project / "p.toml", templates / "a.j2"]
    assert "state_dir: not allowed" in refusal(environ, project)
    trusted(environ, project)
    configuration = config.load(environ, project)
    assert (
        configuration.state_dir == project / ".state"
        and configuration.notices["x"].command[0] == "bash"
    )
    assert configuration.project == config.Project(path=path, is_trusted=True)
    assert configuration.project.standing == "trusted"

    def new(file: Path, content: str) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)

    # One after the other; each is undone by being trusted, or undone, before the next.
    for file, content in (
        (path, text + "# a comment\n"),
        (templates / "a.j2", "b"),
        (templates / "b.j2", ""),
        (templates / "deep" / "c.j2", ""),
        (project / "p.toml", "\n"),
        (project / "notify.sh", "id"),
    ):
        new(file, content)
        message = refusal(environ, project)
        assert message.endswith(rest(environ, project, ", which changed since you trusted it,"))
        trusted(environ, project)
        assert config.load(environ, project).project.is_trusted
    (templates / "b.j2").unlink()
    assert "changed since you trusted it" in refusal(environ, project)
    # What was reviewed before is not trusted any more.
    assert [recorded.name for recorded in trust.folder(environ).iterdir()] == list(
        trust.digests(environ, path)
    )


def test_trust_is_recorded_for_a_path(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    write(project, 'state_dir = ".state"')
    trusted(environ, project)
    # The same content elsewhere, be it a copy or a link, would name another folder.
    for make in (os.link, os.symlink):
        other = tmp_path / make.__name__
        other.mkdir()
        make(project / "orchestrator.toml", other / "orchestrator.toml")
        assert refusal(environ, other).endswith(rest(environ, other))
    # And a link to the folder is the folder.
    (tmp_path / "alias").symlink_to(project)
    assert config.load(environ, tmp_path / "alias").state_dir == project / ".state"


@needs_root
def test_records_that_other_users_can_change_are_ignored(
    environ: dict[str, str], project: Path
) -> None:
    path = write(project, 'state_dir = ".state"')
    trusted(environ, project)
    (record,) = trust.folder(environ).iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700
    for folder in (record, record.parent, record.parent.parent):
        os.chown(folder, EVE, EVE)
        assert "state_dir: not allowed" in refusal(environ, project)
        os.chown(folder, 0, 0)
        assert config.load(environ, project).project.is_trusted
    record.parent.chmod(0o777)
    assert "state_dir: not allowed" in refusal(environ, project)
    with pytest.raises(errors.OrchestratorError) as caught:
        trust.record(environ, path, "0" * 64)
    assert str(caught.value) == (
        f"{record.parent} is not used: {record.parent} can be written by every user, so others "
        f"could change what your jobs run. Run `chmod go-w {record.parent}`, or set "
        "XDG_DATA_HOME to a folder of your own."
    )


def test_too_many_or_too_large_files_cannot_be_trusted(
    environ: dict[str, str], project: Path
) -> None:
    path = write(project, 'templates_dir = "t"')
    (project / "t").mkdir()
    trusted(environ, project)
    with (project / "t" / "large").open("wb") as file:
        file.truncate(2**40)
    assert "changed since you trusted it" in refusal(environ, project)
    with pytest.raises(errors.ConfigurationError) as caught:
        projects.review(path, environ)
    assert str(caught.value) == (
        f"{path}: names a file larger than 4 MiB: {project}/t/large\n1 problem; nothing was done."
    )
    (project / "t" / "large").unlink()
    (project / "t" / "round").symlink_to(project / "t")
    for number in range(30):
        (project / "t" / str(number)).touch()
    with pytest.raises(errors.ConfigurationError, match="names more than 1000 files"):
        projects.review(path, environ)


@needs_root
@pytest.mark.parametrize("folder", ["file", "folder"])
def test_a_file_of_another_user_is_left_out(
    environ: dict[str, str], project: Path, folder: str
) -> None:
    path = write(project, 'state_dir = ".state"')
    theirs = path if folder == "file" else project
    os.chown(theirs, EVE, EVE)
    configuration = config.load(environ, project)
    assert configuration.state_dir == Path(environ["HOME"], ".local/state/orchestrator")
    assert configuration.project is not None and configuration.project.standing == "not read"
    assert configuration.notes == (
        f"{path} is not read: {theirs} belongs to user ID {EVE}. Accept it with "
        f'`shared_folders = ["{project}"]` in your own configuration, or review the file and run '
        f"`orchestrator trust {project}`.",
    )
    trusted(environ, project)
    assert config.load(environ, project).state_dir == project / ".state"
    path.write_text("[nonsense")
    (note,) = config.load(environ, project).notes
    assert f"user ID {EVE}, and it changed since you trusted it. Accept" in note


@needs_root
def test_ignored_file_is_mentioned_with_missing_keys(
    environ: dict[str, str], project: Path
) -> None:
    path = write(project, "[profiles.a]\n")
    os.chown(path, EVE, EVE)
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(environ, project, {"profile": "a"})
    first, second, count = str(caught.value).splitlines()
    assert first.startswith(f"{path} is not read: {path} belongs to user ID {EVE}. Accept ")
    assert second == '--profile: profile: no profile "a". Known: none.'
    assert count == "2 problems; nothing was done."


@needs_root
def test_a_folder_of_the_group_is_accepted_by_shared_folders(
    environ: dict[str, str], project: Path
) -> None:
    write(project, '[profiles.a]\naccount = "x"\n')
    os.chown(project, 0, EVE)
    project.chmod(0o2770)
    (note,) = config.load(environ, project).notes
    assert note.endswith(
        f"{project} can be written by group {EVE}. Run `chmod g-w {project}`, accept it with "
        f'`shared_folders = ["{project}"]` in your own configuration, or review the file and run '
        f"`orchestrator trust {project}`."
    )
    variable = {"ORCHESTRATOR_SHARED_FOLDERS": f"/elsewhere:{project}:"}
    configuration = config.load(environ | variable, project)
    assert (configuration.profile.account, configuration.notes) == ("x", ())
    assert configuration.shared_folders == (Path("/elsewhere"), project)
    user = Path(environ["HOME"], ".config/orchestrator/config.toml")
    user.parent.mkdir(parents=True)
    user.write_text(f'shared_folders = ["{project}"]')
    assert config.load(environ, project).profile.account == "x"
    # The project file cannot set this, and a world-writable folder is not accepted.
    user.unlink()
    write(project, f'shared_folders = ["{project}"]')
    assert len(config.load(environ, project).notes) == 1
    project.chmod(0o777)
    (note,) = config.load(environ | variable, project).notes
    assert note.endswith(
        f"{project} can be written by every user. Run `chmod go-w {project}`, or review the file "
        f"and run `orchestrator trust {project}`."
    )


def test_the_variable_accepts_only_absolute_paths(environ: dict[str, str], project: Path) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(environ | {"ORCHESTRATOR_SHARED_FOLDERS": "~/a:.:/b"}, project)
    assert str(caught.value) == (
        "ORCHESTRATOR_SHARED_FOLDERS: shared_folders: must be absolute paths separated by colons "
        '(got ".")\n1 problem; nothing was done.'
    )


@needs_root
def test_files_of_the_user_and_the_site_are_safe_or_an_error(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    user = Path(environ["HOME"], ".config/orchestrator/config.toml")
    site = tmp_path / "site/orchestrator/config.toml"
    for path in (user, site):
        path.parent.mkdir(parents=True)
        path.write_text('[profiles.a]\naccount = "x"')
    user.parent.chmod(0o777)
    os.chown(site.parent.parent, EVE, EVE)
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(environ, project)
    assert str(caught.value) == "\n".join(
        [
            f"{user}: not safe to read: {user.parent} can be written by every user. "
            f"Run `chmod go-w {user.parent}`",
            f"{site}: not safe to read: {tmp_path}/site belongs to user ID {EVE}. Accept it with "
            f'`shared_folders = ["{tmp_path}/site"]` in your own configuration, or with the '
            "variable ORCHESTRATOR_SHARED_FOLDERS",
            "2 problems; nothing was done.",
        ]
    )
    user.parent.chmod(0o755)
    variable = {"ORCHESTRATOR_SHARED_FOLDERS": str(tmp_path / "site")}
    assert config.load(environ | variable, project).profile.account == "x"
    # The user's own file may accept the site's as well, and the site's not itself.
    user.write_text(f'shared_folders = ["{tmp_path}/site"]')
    assert config.load(environ, project).profile.account == "x"
    site.write_text(user.read_text())
    user.unlink()
    with pytest.raises(errors.ConfigurationError):
        config.load(environ, project)


def test_a_file_in_a_sticky_folder(environ: dict[str, str], tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    write(tmp_path, '[profiles.a]\naccount = "x"\n')
    configuration = config.load(environ, tmp_path)
    assert (configuration.profile.account, configuration.notes) == ("x", ())


@needs_root
def test_a_link_to_a_file_of_another_user(
    environ: dict[str, str], project: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.toml"
    theirs.write_text('[profiles.a]\naccount = "x"\n')
    os.chown(theirs, EVE, EVE)
    (project / "orchestrator.toml").symlink_to(theirs)
    (note,) = config.load(environ, project).notes
    assert note.startswith(
        f"{project}/orchestrator.toml is not read: {theirs} belongs to user ID {EVE}. "
    )


def test_a_link_to_itself_is_no_file(environ: dict[str, str], project: Path) -> None:
    (project / "orchestrator.toml").symlink_to(project / "orchestrator.toml")
    (note,) = config.load(environ, project).notes
    assert "cannot be examined (Too many levels of symbolic links)" in note

"""Loading a configuration from files, variables and options, with the origin of each key."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator import config, errors, jobs
from orchestrator.config import file_schema
from orchestrator.toml import documents

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file below the test's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return variables that keep the machine's own files out."""
    return {
        "HOME": str(tmp_path / "home"),
        "USER": "ada",
        "XDG_CONFIG_DIRS": f"{tmp_path}/site:{tmp_path}/site2",
    }


def failure(environ: Mapping[str, str], cwd: Path, **overrides: object) -> str:
    with pytest.raises(errors.ConfigurationError) as caught:
        config.load(environ, cwd, overrides)
    assert caught.value.exit_code == 3
    return str(caught.value)


def origin_of(configuration: config.Configuration, key: str) -> tuple[object, str]:
    (result,) = [item for item in configuration.origins if item.key == key]
    return result.value, result.origin


def test_defaults(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = config.load(environ, tmp_path)
    home = tmp_path / "home"
    assert dataclasses.replace(
        configuration, document=documents.empty("default")
    ) == config.Configuration(
        state_dir=home / ".local/state/orchestrator",
        runs_dir=home / "orchestrator-runs",
        templates_dir=None,
        fabric_folders=configuration.fabric_folders,
        database=f"sqlite:///{home}/.local/state/orchestrator/orchestrator.db",
        profile=config.Profile(),
    )
    assert not home.exists()
    assert {item.origin for item in configuration.origins} == {"default"}
    tables = {
        **{"alerts": jobs.Alerts, "retry": jobs.Retry, "code": jobs.Code},
        "tracking": jobs.Tracking,
    }
    keys = {"name": []} | {
        name: [
            f"profiles.default.{name}.{field.name}"
            for field in dataclasses.fields(record)
            if field.name not in jobs.SET_BY_US
        ]
        for name, record in tables.items()
    }
    assert [item.key for item in configuration.origins] == [
        *("state_dir", "runs_dir", "templates_dir", "shared_folders"),
        *("pattern_files", "metrics_file", "metrics_file_mode", "database", "profile"),
        *("agents.max_gpu_hours", "agents.max_gpu_hours_per_day"),
        *(f"nodes.{field.name}" for field in dataclasses.fields(config.Nodes)),
        *(f"tracking.{field.name}" for field in dataclasses.fields(file_schema.Tracking)),
        *(
            key
            for field in dataclasses.fields(config.Profile)
            for key in keys.get(field.name, [f"profiles.default.{field.name}"])
        ),
    ]


def test_a_table_of_changes_is_one_value(environ: dict[str, str], write: Write) -> None:
    text = """\
[profiles.a]
variables = { A = "1" }
retry.max_retries = 1
partitions.accel.gpus_per_node = 4
[profiles.a.retry.limits]
oom_host = 2
[profiles.a.retry.changes.oom_host]
"resources.mem" = "x2"
"args.batch_size" = "x0.5"
"""
    path = write("home/.config/orchestrator/config.toml", text)
    configuration = config.load(environ, path.parent)
    changes = {"resources.mem": "x2", "args.batch_size": "x0.5"}
    at = "profiles.a.retry.changes.oom_host"
    assert origin_of(configuration, at) == (changes, f"{path}:7")
    assert origin_of(configuration, "profiles.a.retry.limits.oom_host") == (2, f"{path}:6")
    assert origin_of(configuration, "profiles.a.variables.A") == ("1", f"{path}:2")
    assert origin_of(configuration, "profiles.a.partitions.accel.gpus_per_node") == (4, f"{path}:4")


def test_each_layer_beats_the_one_below(
    tmp_path: Path, environ: dict[str, str], write: Write
) -> None:
    cwd = tmp_path / "project" / "deep" / "er"
    cwd.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    runs_dir = ""
    for name in (
        *("site2/orchestrator/config.toml", "site/orchestrator/config.toml"),
        *("home/.config/orchestrator/config.toml", "project/orchestrator.toml"),
    ):
        folder = Path(name).parts[0]
        # What a project's file may set, it sets over the others.
        key = "" if folder == "project" else f'runs_dir = "/{folder}"\n'
        text = f'# first\n{key}[profiles.a]\npartition = "{folder}"\n'
        path = write(name, text)
        configuration = config.load(environ, cwd)
        runs_dir = f"/{folder}" if key else runs_dir
        assert origin_of(configuration, "runs_dir")[0] == Path(runs_dir)
        line = len(text.splitlines())
        assert origin_of(configuration, "profiles.a.partition") == (folder, f"{path}:{line}")
    assert (
        origin_of(configuration, "runs_dir")[1]
        == f"{tmp_path}/home/.config/orchestrator/config.toml:2"
    )
    # A nearer project file hides the one above it; they are not laid over one another.
    nearer = write("project/deep/orchestrator.toml", '[profiles.a]\nqos = "s"')
    configuration = config.load(environ, cwd)
    assert origin_of(configuration, "profiles.a.qos") == ("s", f"{nearer}:2")
    assert origin_of(configuration, "profiles.a.partition")[0] == "home"
    environ["ORCHESTRATOR_RUNS_DIR"] = "~/env"
    configuration = config.load(environ, cwd)
    assert origin_of(configuration, "runs_dir") == (
        tmp_path / "home" / "env",
        "ORCHESTRATOR_RUNS_DIR",
    )
    configuration = config.load(environ, cwd, {"runs_dir": Path("flag"), "state_dir": None})
    assert origin_of(configuration, "runs_dir") == (cwd / "flag", "--runs-dir")


def test_a_project_file_above_a_folder_that_is_in_no_git_tree_does_not_count(
    tmp_path: Path, environ: dict[str, str], write: Write
) -> None:
    write("orchestrator.toml", '[profiles.a]\naccount = "x"')
    (tmp_path / "below").mkdir()
    assert config.load(environ, tmp_path / "below").profile.account is None
    assert config.load(environ, tmp_path).profile.account == "x"


def test_paths_are_seen_from_their_file_and_variables_are_put_in(
    tmp_path: Path, environ: dict[str, str], write: Write
) -> None:
    text = 'runs_dir = "/cluster/${USER}/$USER-runs"\nstate_dir = "~/s"\ntemplates_dir = "../t"\n'
    text += 'metrics_file = "../m/$USER.prom"\nmetrics_file_mode = "0640"\n'
    write("site/orchestrator/config.toml", text)
    assert failure(environ, tmp_path).endswith(
        f"/config.toml:3: templates_dir: no such folder: {tmp_path}/site/t\n"
        '    3 | templates_dir = "../t"\n'
        "1 problem; nothing was done."
    )
    (tmp_path / "site" / "t").mkdir()
    configuration = config.load(environ, tmp_path)
    assert configuration.runs_dir == Path("/cluster/ada/ada-runs")
    assert configuration.state_dir == tmp_path / "home" / "s"
    assert configuration.templates_dir == tmp_path / "site" / "t"
    assert configuration.metrics_file == tmp_path / "site" / "m" / "ada.prom"
    assert configuration.metrics_file_mode == 0o640
    assert configuration.database == f"sqlite:///{tmp_path}/home/s/orchestrator.db"
    del environ["USER"]
    message = failure(environ, tmp_path)
    assert "/config.toml:4: metrics_file: $USER is not set here\n" in message
    environ["ORCHESTRATOR_METRICS_FILE"] = "/m/x.prom"
    write("site/orchestrator/config.toml", text.partition("metrics")[0])
    environ["USER"] = "ada"
    assert config.load(environ, tmp_path).metrics_file == Path("/m/x.prom")
    del environ["USER"]
    assert failure(environ, tmp_path).endswith(
        "/site/orchestrator/config.toml:1: runs_dir: $USER is not set here\n"
        '    1 | runs_dir = "/cluster/${USER}/$USER-runs"\n'
        "1 problem; nothing was done."
    )


def test_xdg_folders(tmp_path: Path, environ: dict[str, str], write: Write) -> None:
    environ |= {"XDG_STATE_HOME": "/state", "XDG_CONFIG_HOME": str(tmp_path / "c")}
    write("c/orchestrator/config.toml", 'profile = "x"\n[profiles.x]\n')
    configuration = config.load(environ, tmp_path)
    assert configuration.state_dir == Path("/state/orchestrator")
    assert configuration.profile.name == "x"
    # The XDG specification has a path that is not absolute ignored.
    environ |= {"XDG_STATE_HOME": "state"}
    assert config.load(environ, tmp_path).state_dir == tmp_path / "home/.local/state/orchestrator"


TWO = '[profiles.a]\naccount = "x"\n[profiles.b]\naccount = "y"\n'


def test_which_profile(tmp_path: Path, environ: dict[str, str], write: Write) -> None:
    write("site/orchestrator/config.toml", '[profiles.only]\naccount = "x"\n')
    assert config.load(environ, tmp_path).profile == config.Profile(name="only", account="x")
    path = write("site/orchestrator/config.toml", TWO)
    assert config.load(environ, tmp_path).profile == config.Profile()
    write("site/orchestrator/config.toml", 'profile = "a"\n' + TWO)
    assert config.load(environ, tmp_path).profile.account == "x"
    environ["ORCHESTRATOR_PROFILE"] = "b"
    configuration = config.load(environ, tmp_path)
    assert origin_of(configuration, "profile") == ("b", "ORCHESTRATOR_PROFILE")
    assert origin_of(configuration, "profiles.b.account") == ("y", f"{path}:5")
    assert config.load(environ, tmp_path, {"profile": "a"}).profile.name == "a"
    assert failure(environ, tmp_path, profile="c") == (
        '--profile: profile: no profile "c". Known: a, b.\n1 problem; nothing was done.'
    )
    environ["ORCHESTRATOR_PROFILE"] = "B"
    assert failure(environ, tmp_path).startswith(
        'ORCHESTRATOR_PROFILE: profile: no profile "B". Did you mean "b"?\n'
    )


def test_variables_and_flags_change_the_chosen_profile(
    tmp_path: Path, environ: dict[str, str], write: Write
) -> None:
    write("site/orchestrator/config.toml", 'profile = "b"\n' + TWO)
    environ |= {
        "ORCHESTRATOR_ACCOUNT": "4711",
        "ORCHESTRATOR_POLL_FLOOR_SECONDS": "30",
        "ORCHESTRATOR_RUN_DIR": "/of/a/job",
    }
    configuration = config.load(environ, tmp_path, {"gres_style": "gres"})
    assert configuration.profile == config.Profile(
        name="b", account="4711", poll_floor_seconds=30, gres_style="gres"
    )
    assert origin_of(configuration, "profiles.b.gres_style") == ("gres", "--gres-style")
    assert origin_of(configuration, "profiles.b.account") == ("4711", "ORCHESTRATOR_ACCOUNT")
    environ["ORCHESTRATOR_POLL_FLOOR_SECONDS"] = "soon"
    assert failure(environ, tmp_path, gres_style="local") == (
        '--gres-style: profiles.b.gres_style: must be one of "gpus_per_node", "gres" '
        '(got "local")\n'
        "ORCHESTRATOR_POLL_FLOOR_SECONDS: profiles.b.poll_floor_seconds: must be an integer "
        '(got "soon")\n'
        "2 problems; nothing was done."
    )


@pytest.mark.parametrize("name", ["back\\slash", "pn%N"])
def test_a_runs_dir_that_slurm_would_read_its_own_way(
    tmp_path: Path, environ: dict[str, str], name: str
) -> None:
    assert failure(environ, tmp_path, runs_dir=f"/cluster/{name}") == (
        "--runs-dir: runs_dir: must not contain backslash or %: "
        f"Slurm would write logs elsewhere (got /cluster/{name})\n"
        "1 problem; nothing was done."
    )


def test_all_problems_are_reported_at_once_with_lines(
    tmp_path: Path, environ: dict[str, str], write: Write
) -> None:
    user = write("home/.config/orchestrator/config.toml", "[profiles\n")
    site = write(
        "site/orchestrator/config.toml",
        """\
runs_dr = "/x"
[profiles.olivia]
acount = "x"
partition = "a b"
name = "y"
poll_floor_seconds = 0
submit_grace_seconds = "120"
gres_style = "gpus"
modules = ["-x"]
binds = ["data:/data"]
variables = { SLURM_X = "1" }
alerts = { slow_percent = 100 }
[profiles.olivia.partitions.accel]
max_time = "1h"
gpus_per_node = -1
max_tim = 1
[profiles."a b"]
account = "a\\tb"
""",
    )
    text = failure(environ, tmp_path)
    assert text == "\n".join(
        [
            f"{user}:1: not TOML: Expected ']' at the end of a table declaration",
            "    1 | [profiles",
            f'{site}:1: runs_dr: unknown key. Did you mean "runs_dir"?',
            '    1 | runs_dr = "/x"',
            f'{site}:3: profiles.olivia.acount: unknown key. Did you mean "account"?',
            '    3 | acount = "x"',
            f"{site}:4: profiles.olivia.partition: must be partition names separated by commas: "
            'letters, digits, _ . - (got "a b")',
            '    4 | partition = "a b"',
            f"{site}:5: profiles.olivia.name: is the table's own name: remove it",
            '    5 | name = "y"',
            f"{site}:6: profiles.olivia.poll_floor_seconds: must be >= 1 (got 0)",
            "    6 | poll_floor_seconds = 0",
            f'{site}:7: profiles.olivia.submit_grace_seconds: must be an integer (got "120"): '
            "write 120",
            '    7 | submit_grace_seconds = "120"',
            f'{site}:8: profiles.olivia.gres_style: must be one of "gpus_per_node", "gres" '
            '(got "gpus"). Did you mean "gpus_per_node"?',
            '    8 | gres_style = "gpus"',
            f'{site}:9: profiles.olivia.modules[0]: must be a module\'s name (got "-x")',
            '    9 | modules = ["-x"]',
            f'{site}:10: profiles.olivia.binds[0]: must be "/host/path" or '
            '"/host/path:/path/inside", optionally followed by ":ro" (got "data:/data")',
            '    10 | binds = ["data:/data"]',
            f"{site}:11: profiles.olivia.variables.SLURM_X: is reserved for Slurm: export it "
            "in environment.setup if necessary",
            '    11 | variables = { SLURM_X = "1" }',
            f"{site}:12: profiles.olivia.alerts.slow_percent: must be <= 99 (got 100)",
            "    12 | alerts = { slow_percent = 100 }",
            f"{site}:14: profiles.olivia.partitions.accel.max_time: must be minutes or a time such "
            'as "30", "1:30:00", "2-00" or "UNLIMITED" (got "1h")',
            '    14 | max_time = "1h"',
            f"{site}:15: profiles.olivia.partitions.accel.gpus_per_node: must be >= 0 (got -1)",
            "    15 | gpus_per_node = -1",
            f"{site}:16: profiles.olivia.partitions.accel.max_tim: unknown key. Did you mean "
            '"max_time"?',
            "    16 | max_tim = 1",
            f'{site}:17: profiles."a b": must be a name of letters, digits and _ . -',
            '    17 | [profiles."a b"]',
            f'{site}:18: profiles."a b".account: contains tab (U+0009), which is not allowed',
            '    18 | account = "a\\tb"',
            "17 problems; nothing was done.",
        ]
    )


def test_unreadable_files_are_reported(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "orchestrator.toml").mkdir()
    assert failure(environ, tmp_path) == (
        f"{tmp_path}/orchestrator.toml: cannot be read: not a regular file but a folder\n"
        "1 problem; nothing was done."
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:s3cret@host/db", "postgresql://ada:***@host/db"),
        ("postgresql+psycopg://host/db?password=s3cret&x=1", "postgresql+psycopg://host/db?***"),
        ("sqlite:////data/o.db", "sqlite:////data/o.db"),
    ],
)
def test_a_databases_password_is_not_shown(
    tmp_path: Path, environ: dict[str, str], url: str, shown: str
) -> None:
    configuration = config.load(environ | {"ORCHESTRATOR_DATABASE": url}, tmp_path)
    assert configuration.database == url
    message = origin_of(configuration, "database")[0]
    assert message == shown


def test_databases_that_cannot_be(tmp_path: Path, environ: dict[str, str], write: Write) -> None:
    path = write("home/.config/orchestrator/config.toml", 'database = "mysql://ada:s3cret@host/db"')
    assert failure(environ, tmp_path) == (
        f"{path}:1: database: must be sqlite:////ABSOLUTE/PATH or postgresql://...\n"
        "1 problem; nothing was done."
    )
    write("home/.config/orchestrator/config.toml", 'state_dir = "/a?b"')
    error = failure(environ, tmp_path)
    assert "state_dir: must not contain ?: it would end the path in the" in error
    for text in ("~ada/x", ""):
        write("home/.config/orchestrator/config.toml", f'state_dir = "{text}"')
        assert f'state_dir: not a folder (got "{text}")' in failure(environ, tmp_path)

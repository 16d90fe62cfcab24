"""Plugins of other packages: the example package, installed without network, and broken ones."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example package is installed."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=checkout / "examples" / "plugin",
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    # Pure Python: installing it means unpacking it.
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True, timeout=60
    )
    wheel.unlink()
    return folder


@pytest.fixture
def with_plugins(cli: command_line.CommandLine, site: Path) -> command_line.CommandLine:
    cli.environ["PYTHONPATH"] = f"{command_line.CHECKOUT}:{site}"
    return cli


def run(cli: command_line.CommandLine, *argv: str | Path) -> command_line.Done:
    """Run a command in a process of its own, which sees the installed packages."""
    return command_line.finish(cli.start(*argv))


def test_launcher_container_runtime_and_log_pattern_of_a_package(
    with_plugins: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    cli = with_plugins
    fake_slurm.run_jobs()
    cli.spec(
        """
        [job]
        name = "plugged"
        [container]
        runtime = "unshare"
        image = "/"
        [launch]
        launcher = "timed"
        command = "echo consumed 1024 tokens in 0.5 s"
        [metrics]
        patterns = ["tokens"]
        """
    )
    script = run(cli, "render", "job.toml").out
    assert "# ---- Launch: timed\n" in script
    assert "  unshare --map-root-user chroot /\n" in script
    done = run(cli, "submit", "job.toml", "--wait")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, plugged)\n"), done.err
    log = run(cli, "logs", "1").out
    assert "\nconsumed 1024 tokens in 0.5 s\n\nreal\t0m0." in log
    rows = json.loads(run(cli, "metrics", "1", "--json").out)["items"]
    assert [(row["name"], row["value"], row["unit"], row["source"]) for row in rows] == [
        ("tokens", 1024.0, "tokens", "log:tokens"),
        ("seconds", 0.5, "s", "log:tokens"),
    ]
    # Without the package the job is still shown.
    assert cli("status", "1", "--json", PYTHONPATH=str(command_line.CHECKOUT)).code == 0


def test_notification_channel_of_a_package(
    with_plugins: command_line.CommandLine, tmp_path: Path
) -> None:
    cli = with_plugins
    folder = cli.home / ".config" / "orchestrator"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "config.toml").write_text(
        f'[notices.log]\nkind = "file"\nsettings.path = "{tmp_path}/sent"\n'
        '[notices.broken]\nkind = "file"\n'
    )
    done = run(cli, "notices", "test", "log")
    assert (done.code, done.err) == (0, "")
    (line,) = (tmp_path / "sent").read_text().splitlines()
    sent = json.loads(line)
    assert (sent["schema"], sent["kind"], len(sent["items"])) == ("orchestrator/v1", "notices", 1)
    done = run(cli, "notices", "test", "broken")
    assert (done.code, done.out, done.err) == (1, "", "Error: file: KeyError: 'path'\n")
    (folder / "config.toml").write_text('[notices.log]\nkind = "fil"\n')
    done = run(cli, "notices", "test", "log")
    assert done.err == (
        f'Error: {folder}/config.toml:2: notices.log.kind: no notification channel "fil". Did you '
        'mean "file"? Installed plugins: file. Built in: email, webhook, command\n'
        '    2 | kind = "fil"\n1 problem; nothing was done.\n'
    )


def test_an_unknown_name_lists_what_is_installed(with_plugins: command_line.CommandLine) -> None:
    cli = with_plugins
    (cli.folder / "train.py").touch()
    done = run(cli, "submit", "train.py", "--launcher", "time", "--container-runtime", "x")
    assert (done.code, done.out, done.err) == (
        3,
        "",
        'Error: --launcher: launch.launcher: no launcher "time". Did you mean "timed"? Installed '
        "plugins: timed. Built in: auto, torchrun, srun, python, ray\n"
        '--container-runtime: container.runtime: no container runtime "x". Installed plugins: '
        "unshare. Built in: none, apptainer, singularity, pyxis, podman-hpc, charliecloud, edf\n"
        "2 problems; nothing was submitted.\n",
    )
    done = cli("submit", "train.py", "--launcher", "timed", PYTHONPATH=str(command_line.CHECKOUT))
    assert done.err == (
        'Error: --launcher: launch.launcher: no launcher "timed". Installed plugins: none. '
        "Built in: auto, torchrun, srun, python, ray\n1 problem; nothing was submitted.\n"
    )


def install(site: Path, name: str, points: str, module: str = "") -> None:
    """Install a package by hand, as a wheel would be."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(points))
    if module:
        (site / f"{name}.py").write_text(module)


def test_a_broken_plugin_is_named_with_its_package(
    cli: command_line.CommandLine, tmp_path: Path
) -> None:
    site = tmp_path / "broken-site"
    points = "[orchestrator.launchers]\nbad = {}:LAUNCHER\nwrong = json:loads\n"
    points += "../../up = json:loads\nexits = exits:LAUNCHER\nuntyped = untyped:LAUNCHER\n"
    points += "[orchestrator.notification_channels]\nleaves = leaves:CHANNEL\n"
    install(site, "broken", points.format("broken"), "import no_such_module\n")
    for name in ("one", "two"):
        install(site, name, "[orchestrator.launchers]\ntwice = json:loads\n")
    (site / "exits.py").write_text("import sys\nprint('hello')\nsys.exit(0)\n")
    (site / "untyped.py").write_text(
        "from orchestrator import plugins\nLAUNCHER = plugins.Launcher(template=3)\n"
    )
    (site / "leaves.py").write_text(
        "import sys\nfrom orchestrator import plugins\n"
        "CHANNEL = plugins.NotificationChannel(send=lambda *_: sys.exit(0))\n"
    )
    cli.environ["PYTHONPATH"] += f":{site}"
    (cli.folder / "train.py").touch()
    messages = {
        "bad": "the launcher 'bad' of broken 1.0 cannot be imported: ModuleNotFoundError: No "
        "module named 'no_such_module'. Repair or uninstall that package",
        "wrong": "the launcher 'wrong' of broken 1.0 is a function, not a plugins.Launcher: its "
        "entry point json:loads is wrong",
        "../../up": "the launcher '../../up' of broken 1.0 has a name with other characters than "
        "letters, digits, . _ -",
        "exits": "the launcher 'exits' of broken 1.0 cannot be imported: SystemExit: 0. Repair or "
        "uninstall that package",
        "untyped": "the launcher 'untyped' of broken 1.0 cannot be imported: TypeError: template "
        "must be str (got 3). Repair or uninstall that package",
        "twice": "one 1.0 and two 1.0 have an entry point 'twice' of orchestrator.launchers each: "
        "uninstall one of them",
    }
    for name, message in messages.items():
        done = run(cli, "submit", "train.py", "--launcher", name)
        message = f"--launcher: launch.launcher: {message}\n1 problem; nothing was submitted.\n"
        # What a plugin prints goes to stderr.
        assert (done.code, done.out, done.err.replace("hello\n", "")) == (
            3,
            "",
            f"Error: {message}",
        )
    folder = cli.home / ".config" / "orchestrator"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "config.toml").write_text('[notices.x]\nkind = "leaves"\n')
    done = run(cli, "notices", "test", "x")
    assert (done.code, done.out, done.err) == (1, "", "Error: leaves: SystemExit: 0\n")
    # A name that is built in loads no plugin.
    assert run(cli, "submit", "train.py", "--launcher", "python").code == 0

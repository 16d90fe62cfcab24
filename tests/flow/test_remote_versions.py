"""`--host` between two versions that are really installed: a newer host, and a newer laptop."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import orchestrator
from tests import zygote
from tests.flow import command_line
from tests.flow.command_line import Done
from tests.flow.remote_site import NAME, Site, write_program

SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nscript = "train.py"\n'
NEWER = "0.2.0"


@pytest.fixture
def site(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as made:
        project = made.laptop.folder
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        (project / "job.toml").write_text(SPEC)
        (project / "train.py").touch()
        yield made


def another_version(folder: Path, checkout: Path, *, protocols: tuple[int, int]) -> Path:
    """Copy the program with another version number, which speaks other protocols too."""
    for name in ("orchestrator", "db", "templates"):
        shutil.copytree(
            checkout / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name, old, new in (
        ("__init__.py", f'"{orchestrator.__version__}"', f'"{NEWER}"'),
        ("remote/messages.py", "PROTOCOLS = (1, 1)", f"PROTOCOLS = {protocols}"),
    ):
        path = folder / "orchestrator" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return folder


def newer_host(site: Site, folder: Path) -> Callable[..., Done]:
    """Let the host have this version; return how the laptop calls it."""
    words = f'exec env PYTHONPATH={folder} {shlex.quote(sys.executable)} -m orchestrator "$@"'
    write_program(Path(site.path.partition(":")[0], "orchestrator"), words)
    return site


def newer_laptop(site: Site, folder: Path) -> Callable[..., Done]:
    """Let the laptop have this version; return how it calls the host."""
    command = [sys.executable, "-m", "orchestrator"]

    def call(*words: str) -> Done:
        return site.laptop.run([*command, "--host", NAME, *words], PYTHONPATH=str(folder))

    done = site.laptop.run([*command, "--version"], PYTHONPATH=str(folder))
    assert done.out == f"orchestrator, version {NEWER}\n"
    return call


@pytest.mark.parametrize("newer", [newer_host, newer_laptop])
def test_two_versions_understand_each_other(
    site: Site,
    tmp_path: Path,
    checkout: Path,
    newer: Callable[[Site, Path], Callable[..., Done]],
) -> None:
    folder = another_version(tmp_path / "newer", checkout, protocols=(1, 2))
    call = newer(site, folder)
    assert call("submit", "job.toml").out == "Submitted batch job 1 (@1, demo)\n"
    assert call("show", "77").code == 4
    # The answer of a submission is lost, and the next call has it.
    site.configure(reconnect_seconds=0)
    site.cut("from host 200")
    assert call("submit", "--like", "1").code == 255
    site.host.wait_until(
        lambda: len(site.requests) == 2 and all((path / "exit").exists() for path in site.requests)
    )
    done = call("status", "--json")
    assert [item["job_id"] for item in done.items] == ["2", "1"]
    assert re.search(r"has run on mill \(exit code 0\):\nSubmitted batch job 2 ", done.err)


@pytest.mark.parametrize(
    ("newer", "error"),
    [
        (
            newer_host,
            "orchestrator 0.1.0 here is too old for orchestrator 0.2.0 on mill: upgrade it here",
        ),
        (
            newer_laptop,
            "orchestrator 0.1.0 on mill is too old for orchestrator 0.2.0 here: `orchestrator "
            "setup --host mill` upgrades it",
        ),
    ],
)
def test_the_side_that_is_too_old_is_named(
    site: Site,
    tmp_path: Path,
    checkout: Path,
    newer: Callable[[Site, Path], Callable[..., Done]],
    error: str,
) -> None:
    folder = another_version(tmp_path / "newer", checkout, protocols=(2, 2))
    done = newer(site, folder)("status")
    assert (done.code, done.out, done.err) == (255, "", f"Error: {error}\n")

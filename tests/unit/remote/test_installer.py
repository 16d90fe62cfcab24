"""What `setup --host` does on the host, without pip."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.remote import installer


class Host:
    """A home folder, and what the installer calls and prints there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.base = home / ".local/share/orchestrator/install"
        self.link = home / ".local/bin/orchestrator"
        self.calls: list[list[str]] = []
        #: the word of a command that fails
        self.failing = ""

    def call(self, argv: Sequence[str], stdout: int) -> int:
        assert stdout == 2
        self.calls.append(list(argv))
        if "venv" in argv:
            (Path(argv[-1]) / "bin").mkdir(parents=True)
            (Path(argv[-1]) / "bin/orchestrator").touch()
        return int(self.failing in argv)

    def install(self, version: str, *extras: str, offline: bool = False, again: bool = True) -> int:
        wheel = f"orchestrator-{version}-py3-none-any.whl"
        return installer.main(
            {
                "version": version,
                "digest": "0123456789",
                "files": {wheel: base64.b64encode(b"wheel").decode()},
                "extras": None if again and not extras else list(extras),
                "offline": offline,
            }
        )

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.base.iterdir())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(subprocess, "call", made.call)
    # It is the whole process on the host.
    monkeypatch.setattr(os, "umask", lambda mask: 0)
    return made


def test_a_second_call_changes_nothing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    target = host.base / "0.1.0-01234567"
    assert host.install("0.1.0") == 0
    first, second = host.calls
    assert first[1:] == ["-m", "venv", str(target)]
    assert second[0] == str(target / "bin/python")
    assert second[-1] == str(target / "wheels/orchestrator-0.1.0-py3-none-any.whl")
    written = f"probe installed {target}\nprobe base {host.base}\nprobe linked {host.link}\n"
    assert capsys.readouterr().out == f"probe state new\n{written}"
    assert host.install("0.1.0") == 0
    assert len(host.calls) == 2
    assert capsys.readouterr().out == f"probe state same\n{written}"
    assert host.link.resolve() == target / "bin/orchestrator"


def test_an_upgrade_keeps_the_extras_and_the_version_before(host: Host) -> None:
    assert host.install("0.1.0", "web", "tui") == 0
    assert host.calls[-1][-1].endswith("py3-none-any.whl[web,tui]")
    assert host.install("0.2.0") == 0
    assert host.folders == ["0.1.0-01234567-web-tui", "0.2.0-01234567-web-tui", "current"]
    assert host.link.resolve().parts[-3] == "0.2.0-01234567-web-tui"
    assert host.install("0.3.0", again=False) == 0
    assert host.folders == ["0.2.0-01234567-web-tui", "0.3.0-01234567", "current"]


@pytest.mark.parametrize("failing", ["venv", "install"])
def test_a_failure_leaves_what_was_there(
    host: Host, capsys: pytest.CaptureFixture[str], failing: str
) -> None:
    assert host.install("0.1.0") == 0
    host.failing = failing
    assert host.install("0.2.0") == 1
    word = "pip" if failing == "install" else "venv"
    assert capsys.readouterr().out.endswith(f"probe failed {word}\n")
    assert host.folders == ["0.1.0-01234567", "current"]
    # One that was killed is made anew.
    (host.base / "0.2.0-01234567").mkdir()
    host.failing = ""
    assert host.install("0.2.0", offline=True) == 0
    assert "--no-index" in host.calls[-1]


def test_a_command_of_somebody_else_stays(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.link.parent.mkdir(parents=True)
    host.link.write_text("another program")
    assert host.install("0.1.0") == 0
    assert capsys.readouterr().out.endswith(f"probe foreign {host.link}\n")
    assert host.link.read_text() == "another program"

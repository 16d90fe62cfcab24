"""Installation of `orchestrator tick`: systemd units, and lines in an existing crontab."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orchestrator import config, errors
from orchestrator.controller.schedules import install

DRIVER = install.Driver(
    argv=("/opt/o b/orchestrator", "--profile", "$x", "tick", "--quiet"),
    environ={"PATH": "/usr/bin", "ORCHESTRATOR_RUNS_DIR": '/r/50%"'},
    state_dir=Path("/s"),
)


def test_lines() -> None:
    env = "env PATH=/usr/bin 'ORCHESTRATOR_RUNS_DIR=/r/50\\%\"' '/opt/o b/orchestrator'"
    line = f"* * * * {env} --profile '$x' tick --quiet"
    assert install.lines(DRIVER, "cron") == [install.BEGIN, f"* {line}", install.END]
    assert install.lines(DRIVER, "scrontab")[-2] == f"*/5 {line}".replace("\\%", "%")


def test_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/a")
    service, timer = install.units(DRIVER).values()
    assert next(iter(install.units(DRIVER))) == Path(
        "/home/a/.config/systemd/user/orchestrator-tick.service"
    )
    assert 'ExecStart="/opt/o b/orchestrator" --profile $$x tick --quiet\n' in service
    assert 'Environment="ORCHESTRATOR_RUNS_DIR=/r/50%%\\""\n' in service
    assert "OnCalendar=*:*:00\n" in timer


def test_a_driver_in_a_folder() -> None:
    driver = dataclasses.replace(DRIVER, folder=Path("/p 1%"))
    assert install.lines(driver, "cron")[1].startswith("* * * * * cd '/p 1\\%' && env PATH=")
    (service, _) = install.units(driver).values()
    assert "\nWorkingDirectory=/p 1%%\n" in service


def test_a_newline_is_refused(tmp_path: Path) -> None:
    variables = install.ReadVariables({"HOME": str(tmp_path), "ORCHESTRATOR_X": "a\n* * * * * b"})
    configuration = config.load(variables, tmp_path)
    with pytest.raises(errors.OrchestratorError, match="cannot contain a newline"):
        install.driver(["/o"], {}, configuration, variables, tmp_path)


def test_foreign_lines_stay() -> None:
    ours = install.lines(DRIVER, "cron")
    before = "MAILTO=a\n0 1 * * * backup\n"
    once = install.merged(before, ours)
    assert once == before + "\n".join(ours) + "\n"
    assert install.merged(once, ours) == once
    assert install.merged(f"{once}# mine\n", []) == f"{before}# mine\n"


@pytest.mark.parametrize("broken", [f"{install.BEGIN}\nx\n", f"x\n{install.END}\n"])
def test_an_unpaired_marker_is_an_error(broken: str) -> None:
    with pytest.raises(errors.ConflictError, match="has no counterpart: remove it first"):
        install.merged(broken, [])


def test_a_password_is_refused() -> None:
    url = "postgresql://alice{}@db/alice"
    install.refuse_password({"ORCHESTRATOR_DATABASE": url.format("")})
    with pytest.raises(errors.OrchestratorError, match="ORCHESTRATOR_DATABASE contains a password"):
        install.refuse_password({"ORCHESTRATOR_DATABASE": url.format(":secret")})

"""The schedule commands: output, regression checks of runs, and installation in a crontab."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

SPEC = """\
[job]
name = "study"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
[sweep]
kind = "grid"
repeats = 3
axes.args.size = [8]
"""
#: The speed is read from a file, so that the spec does not change.
TRAIN = """\
import json, os, pathlib, sys
speed = pathlib.Path("speed").read_text().strip()
task = int(os.environ["SLURM_ARRAY_TASK_ID"])
if speed == "broken" and task == 1:
    sys.exit(3)
speed = float(speed.replace("broken", "1000")) * (1 + 0.002 * task)
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(3):
        record = {"name": "window_throughput", "value": speed, "step": step, "unit": ""}
        print(json.dumps({**record, "rank": 0, "world_size": 1}), file=file)
"""
JOB = '[job]\nname = "x"\ntime_limit = "5"\n[launch]\nlauncher = "python"\ncommand = "true"\n'
CRONTAB = """\
#!/bin/sh
case $1 in
    -l) cat "$HOME/crontab" 2>/dev/null || { echo "no crontab for alice" >&2; exit 1; } ;;
    *) cat "$1" > "$HOME/crontab" ;;
esac
"""


def test_verdicts_on_what_a_schedule_submits(cli, fake_slurm):
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(TRAIN)
    added = cli("schedule", "add", "nightly", "--cron", "@yearly", "--tz", "UTC", cli.spec(SPEC))
    assert (added.code, added.out[:23]) == (0, "Schedule nightly: next ")
    speeds = {
        "1000": ("no baseline", "no earlier run to compare with"),
        "1001": ("ok", "nothing is worse than the previous run"),
        "900": ("regression", "throughput of 1 rank is -10."),
        "broken": ("failed", "1 of 3 did not complete"),
        "1200": ("improvement", "throughput is faster, compared with the previous 2 runs"),
    }
    for number, speed in enumerate(speeds, 1):
        (cli.folder / "speed").write_text(speed)
        ran = cli("schedule", "run", "nightly", "--json")
        assert (ran.code, ran.items[0]["sweep"]) == (0, number), ran.err
        cli("wait", "--sweep", f"@{number}")
        assert cli("tick").code == 0
    items = cli("schedule", "history", "nightly", "--json").items[::-1]
    for item, (word, sentence) in zip(items, speeds.values(), strict=True):
        assert (item["verdict"], item["verdict_detail"]["sentence"][: len(sentence)]) == (
            word,
            sentence,
        )
    # Nothing is left to be done, and nothing was done twice.
    assert cli("tick").err == "Nothing to do.\n"
    assert len(fake_slurm.calls("sbatch")) == len(speeds)


def test_messages_of_the_commands(cli, fake_slurm):
    path = cli.spec(JOB)
    add = ("schedule", "add", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Oslo", path)
    variables = {"API_TOKEN": "secret", "KEPT": "yes", "OTHER": "x"}
    assert cli(*add, "--inherit", "KEPT", **variables).code == 0
    again = cli(*add)
    message = "Error: schedule nightly already exists: use --replace"
    assert (again.code, again.err[: len(message)]) == (6, message)
    ((environment,),) = cli.rows("SELECT environment FROM schedules")
    kept = json.loads(environment)
    assert not {"API_TOKEN", "OTHER"} & set(kept) and kept["KEPT"] == "yes"
    path.write_text(JOB.replace("true", "false"))
    (shown,) = cli("schedule", "show", "nightly", "--json").items
    assert (shown["state"], shown["source_changed"], shown["firings"]) == ("active", True, [])
    for option in ("--grace", "--jitter"):
        too_long = cli(*add, "--replace", option, "367d")
        assert (too_long.code, "'367d' is too long: write at most 366d" in too_long.err) == (
            2,
            True,
        )
    assert cli(*add, "--replace", "--jitter", "10m").code == 0
    done = cli("schedule", "show", "nightly", "--format", "table")
    assert done.err == ""
    assert (
        done.out.splitlines()[1] == "Planned:       30 2 * * * in Europe/Oslo, up to 00:10:00 later"
    )
    assert cli("schedule", "pause", "nightly").out == "Schedule nightly is paused\n"
    (ran,) = cli("schedule", "run", "nightly", "--json").items
    assert (ran["state"], ran["by_hand"], ran["job"]) == ("fired", True, 1)
    refused = cli("schedule", "run", "nightly")
    assert (refused.code, len(fake_slurm.jobs())) == (6, 1)
    assert cli("schedule", "remove", "nightly").code == 0
    assert cli("schedule", "list", "--json").items == []
    assert cli("schedule", "pause", "nightly").err == (
        "Error: schedule 'nightly' not found: `orchestrator schedule list` lists all schedules\n"
    )
    bad = cli("schedule", "add", "x", "--cron", "0 24 * * *", path)
    assert (bad.code, bad.err) == (
        2,
        'Error: "0 24 * * *" is not a cron expression: its hour is invalid or never occurs\n',
    )


@pytest.fixture
def crontab(cli):
    """A crontab that is a file in the home; returns what it holds."""
    folder = cli.home / "bin"
    folder.mkdir()
    (folder / "crontab").write_text(CRONTAB)
    (folder / "crontab").chmod(0o755)
    cli.environ["PATH"] = f"{folder}{os.pathsep}{cli.environ['PATH']}"
    return cli.home / "crontab"


def test_the_driver_in_a_crontab(cli, crontab):
    foreign = "MAILTO=alice\n0 1 * * * backup 100\\%\n"
    install = ("schedule", "install", "--cron")
    lines = cli(*install, XDG_CONFIG_HOME="/x/a b%c").out
    assert not crontab.exists()
    assert "* * * * * env PATH=" in lines and " 'XDG_CONFIG_HOME=/x/a b\\%c' " in lines
    assert lines.endswith(" tick --quiet\n# <<< orchestrator tick <<<\n")
    assert cli(*install, "--write").code == 0
    ours = crontab.read_text()
    crontab.write_text(foreign + ours)
    assert cli(*install, "--write").err == "Nothing to change in your crontab\n"
    assert crontab.read_text() == foreign + ours
    assert cli(*install, "--remove").code == 0
    assert crontab.read_text() == foreign


def test_the_driver_uses_the_configuration_of_the_project(cli, crontab):
    """The installed line is run like cron runs it: in the home, with cron's environment."""
    cli.needs_file()
    local = {"ORCHESTRATOR_SCHEDULER": "local", "XDG_DATA_HOME": str(cli.home / "data")}
    cli.environ.update(local)
    (cli.folder / "orchestrator.toml").write_text('state_dir = "state of $PROJECT"\n')
    cli.environ["PROJECT"] = "50% a"
    assert cli("trust", ".").code == 0
    add = ("schedule", "add", "x", "--cron", "@yearly", cli.spec(JOB))
    refused = cli(*add)
    assert (refused.code, refused.err.partition("Error: ")[2]) == (
        3,
        "$PROJECT: the configuration uses this variable, which the controller will not have when "
        'it submits. Store it: --inherit PROJECT, or inherit = ["PROJECT"] in [environment] of a '
        "spec\n1 problem; nothing was done.\n",
    )
    assert cli("schedule", "list", "--json").items == []
    assert cli(*add, "--inherit", "PROJECT").code == 0
    assert cli("schedule", "install", "--cron", "--write").code == 0
    (ran,) = cli("schedule", "run", "x", "--json").items
    assert cli("wait", f"@{ran['job']}").code == 0
    (line,) = (line for line in crontab.read_text().splitlines() if line.startswith("* "))
    assert line.startswith(f"* * * * * cd {cli.folder} && env ")
    assert cli("schedule", "history", "x", "--json").items[0]["verdict"] is None
    # crontab(5): \% is a %.
    shell = ["sh", "-c", line.removeprefix("* * * * * ").replace("\\%", "%")]
    cron = {"HOME": str(cli.home), "LOGNAME": "alice", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(shell, env=cron, cwd=cli.home, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert cli("schedule", "history", "x", "--json").items[0]["verdict"] == "not measured"
    elsewhere = cli("schedule", "install", "--cron", "--write", cwd=cli.home)
    assert elsewhere.err == (f"Added to your crontab; `crontab -l` shows it\nIt replaces: {line}\n")
    assert "cd " not in crontab.read_text()
    units = cli("schedule", "install", "--systemd").out
    assert f"\nWorkingDirectory={cli.folder}\n" in units
    assert 'Environment="PROJECT=50%% a"\n' in units


@pytest.mark.parametrize(
    "kind, command, fix",
    [
        ("--cron", "crontab", "Install cron, or use --systemd or --scrontab; "),
        (
            "--scrontab",
            "scrontab",
            "It comes with Slurm: use a login node, or --cron or --systemd; ",
        ),
        ("--systemd", "systemctl", "This host has no systemd: use --cron or --scrontab; "),
    ],
)
def test_the_command_of_a_driver_is_missing(cli, kind, command, fix):
    done = cli("schedule", "install", kind, "--write", PATH="/nonexistent")
    assert (done.code, done.err) == (
        1,
        f"Error: {command} could not be started: No such file or directory. "
        f"{fix}`orchestrator serve` needs none.\n",
    )

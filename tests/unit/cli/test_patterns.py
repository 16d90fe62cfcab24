"""`patterns list` and `patterns test`; no database is opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import testing

from orchestrator import cli, errors

OWN = """\
[own]
[[own.line]]
name = "speed"
contains = " pixels/s"
regex = 'speed (?P<throughput>{number}) pixels/s'
metrics = { throughput = "pixels/s" }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, text: str | bytes | None = None) -> testing.Result:
    return testing.CliRunner().invoke(
        cli.cli, ["patterns", *words], prog_name="orchestrator", input=text
    )


def test_a_log_from_stdin() -> None:
    done = run("test", "-", text=b"hello\rstep:1/9 train_time:20ms step_avg:10.5ms\r\nhello\n")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "line\tname\tvalue\tunit\tstep\tepoch\tpattern\n"
        "1\tstep\t1.0\tstep\t1\t\tnanogpt\n"
        "1\ttrain_time\t20.0\tms\t1\t\tnanogpt\n"
        "1\tstep_time\t10.5\tms\t1\t\tnanogpt\n",
        "2 lines, 1 with metrics: 1 by nanogpt\n",
    )


def test_rows_are_printed_page_by_page() -> None:
    lines = [f"iter {step}: loss 2.5, time 1.00ms, mfu 3.00%" for step in range(600)]
    done = run("test", "-", "--format", "jsonl", text="\n".join(lines))
    metrics = [json.loads(line) for line in done.stdout.splitlines()]
    assert [metric["value"] for metric in metrics if metric["name"] == "step"] == [*range(600)]
    assert len(metrics) == 2400
    assert done.stderr == "600 lines, 600 with metrics: 600 by nanogpt\n"


def test_json(home: Path) -> None:
    home.joinpath("a.log").write_text("x\nspeed nan pixels/s\n")
    home.joinpath("own.toml").write_text(OWN)
    done = run("test", "a.log", "--patterns-file", "own.toml", "--pattern", "own", "--json")
    assert json.loads(done.stdout) == {
        "schema": "orchestrator/v1",
        "kind": "matches",
        "items": [
            {
                "line": 2,
                "name": "throughput",
                "value": "NaN",
                "unit": "pixels/s",
                "step": None,
                "epoch": None,
                "rank": None,
                "time": None,
                "pattern": "own",
            }
        ],
    }


def test_similar_lines_are_printed_if_no_line_matches() -> None:
    done = run("test", "-", text="hello\nmy loss went down to 0.5 after 3 steps\n1 2 3\n")
    assert done.stderr == (
        "3 lines; no pattern matches any of them.\n"
        "These lines look most like metrics:\n"
        "      2  my loss went down to 0.5 after 3 steps\n"
        "docs/howto/metrics.md explains how to write a pattern for them.\n"
    )


def test_patterns_of_the_configuration_come_first(home: Path) -> None:
    table = OWN.replace("[own", "[pattern.own").replace("pixels", "points")
    files = 'pattern_files = ["mine.toml"]\n'
    home.joinpath("orchestrator.toml").write_text(files + table)
    home.joinpath("mine.toml").write_text(OWN + OWN.replace("own", "two"))
    rows = json.loads(run("list", "--json").stdout)["items"]
    assert [(row["pattern"], row["origin"]) for row in rows[:3]] == [
        ("own", "configuration"),
        ("two", str(home / "mine.toml")),
        ("olivia", "ships"),
    ]
    done = run("test", "-", text="speed 3 points/s\nspeed 4 pixels/s\n")
    assert [line.split("\t")[2:4] for line in done.stdout.splitlines()[1:]] == [
        ["3.0", "points/s"],
        ["4.0", "pixels/s"],
    ]


def test_errors_name_their_line(home: Path) -> None:
    home.joinpath("orchestrator.toml").write_text(
        'pattern_files = ["none.toml"]\n'
        + OWN.replace("[own", "[pattern.own").replace("name", "nam")
    )
    problems = run("list").exception
    assert isinstance(problems, errors.ConfigurationError)
    assert str(problems) == (
        f"{home}/orchestrator.toml:4: pattern.own.line[0].nam: unknown key. "
        'Did you mean "name"?\n    4 | nam = "speed"\n'
        f"{home}/orchestrator.toml:3: pattern.own.line[0]: has no name\n"
        "    3 | [[pattern.own.line]]\n"
        f"{home}/none.toml: cannot be read: No such file or directory\n"
        "3 problems; nothing was done."
    )

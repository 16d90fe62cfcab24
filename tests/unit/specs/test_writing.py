"""--save-spec: a file that describes what was typed, and renders the same script."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator import specs
from orchestrator.specs import writing
from orchestrator.toml import documents
from tests.unit.rendering import specimens

CASES: list[tuple[Mapping[str, object], list[str]]] = [
    ({}, ["train.py"]),
    ({"resources.gpus_per_node": 2}, ["train.py", "--lr", "0.1", "--amp", "--tags", "a"]),
    ({}, ["train.py", "--t", "a", "--t", "b", "--n", "-1", "--x", "1e-3", "--y", "01"]),
    ({}, ["train.py", "--lr=0.1", "--a_b", "1", "two words", 'it\'s "x" \\ ü']),
    ({}, ["train.py", "--a", "1", "--b", "2", "--a", "3"]),
    ({}, ["train.py", "--inf", "inf", "--x", "--", "y"]),
    ({}, ["train.py", "--", "y"]),
    ({}, ["train.py", "--seed", "123456789012345678901234567890", "--x", "-9223372036854775809"]),
    ({}, ["-u", "train", "--lr", "0.1"]),
    ({}, ["-m", "modül", "--lr", "0.1"]),
    ({}, ["-m", "9lives.train"]),
    ({}, ["-m", "package.module", "--lr", "0.1"]),
    ({}, ["python3", "-O", "train.py", "--lr", "0.1"]),
    ({"launch.nproc_per_node": "2"}, ["/envs/a b/bin/python", "-m", "package.module"]),
    ({}, ["bash", "-c", "echo $HOME 'x'"]),
    (
        {
            "job.name": "own",
            "job.labels": ("team=vision",),
            "job.exclusive": True,
            "environment.variables": ("A=b=c", "BC=1"),
            "resources.gres": "gpu:2",
            "launch.command": "cd /\necho '''x'''\n",
        },
        [],
    ),
    ({"launch.command": "cd /\necho 1 # it's\n"}, []),
]


def saved(flags: Mapping[str, object], program: list[str]) -> str:
    document, problems = specs.read(None, (), flags, program)
    spec = specs.build(document, problems, None)
    document = documents.with_value(document, ("job", "name"), spec.name, "")
    return writing.text(document, ["orchestrator submit job.toml"])


@pytest.mark.parametrize(("flags", "program"), CASES)
def test_the_written_spec_is_the_same_job(
    tmp_path: Path, flags: Mapping[str, object], program: list[str]
) -> None:
    typed = specs.load(None, (), flags, program, folder=None)
    path = tmp_path / "job.toml"
    path.write_text(saved(flags, program))
    assert specimens.rendered(specs.load(path, folder=None)) == specimens.rendered(typed)


def test_arguments_can_be_varied_by_a_sweep() -> None:
    data = tomllib.loads(saved(*CASES[1]))
    assert data["launch"] == {"script": "train.py"}
    assert data["args"] == {"lr": 0.1, "amp": True, "tags": "a"}
    data = tomllib.loads(saved(*CASES[2]))
    assert data["args"] == {"t": ["a", "b"], "n": -1, "x": "1e-3", "y": "01"}
    assert "args" not in tomllib.loads(saved(*CASES[3]))


def test_each_key_has_a_comment_and_the_usual_ones_are_suggested() -> None:
    lines = saved({"resources.gres": "gpu:2"}, ["train.py", "--lr", "0.1"]).splitlines()
    assert [line[:72].rstrip() for line in lines] == [
        "# Written by orchestrator from a command line. Submit it with:",
        "#   orchestrator submit job.toml",
        "# A line that begins with # is a key that was not given. docs/keys.md li",
        "",
        "[job]",
        'name = "train"                  # Name of the job. Default: the name of',
        '# time_limit = "1:00:00"        # Time limit as Slurm accepts it: 30 (mi',
        "",
        "[resources]",
        'gres = "gpu:2"                  # Generic resources in Slurm\'s form: gpu',
        "# nodes = 1                     # Number of nodes.",
        "# cpus_per_task = 8             # CPUs per task.",
        '# mem = "32G"                   # Memory per node: 440G; a number withou',
        "",
        "[environment]",
        '# modules = ["PyTorch"]         # Environment module to load.',
        '# venv = "/path/to/venv"        # Path of a Python virtual environment.',
        "",
        "[launch]",
        'script = "train.py"             # Relative to job.chdir, else to the fol',
        '# launcher = "auto"             # Program launcher. auto: torchrun for P',
        "",
        "[args]",
        "lr = 0.1",
    ]


def test_the_suggested_keys_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    lines = saved({}, ["train.py"]).splitlines()[3:]
    path.write_text("\n".join(line.removeprefix("# ") for line in lines))
    assert specs.load(path, folder=None).resources.mem == "32G"

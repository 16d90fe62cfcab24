"""What the launcher `auto` means: Python with several ranks gets torchrun."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

import pytest

from orchestrator import jobs, specs
from orchestrator.specs import programs, ranks
from tests.unit.rendering import specimens


def launch_of(line: str, **changes: object) -> jobs.Launch:
    return jobs.Launch(program=tuple(shlex.split(line)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train.py --lr 0.1", (None, (), ("train.py",))),
        ("/a/train.py", (None, (), ("/a/train.py",))),
        ("-m package.module x", (None, (), ("-m", "package.module"))),
        ("python train.py", ("python", (), ("train.py",))),
        ("python3 -u train.py", ("python3", (), ("train.py",))),
        ("/envs/a/bin/python3.12 -uO -W ignore -Xdev train", None),
        ("python -m package.module", ("python", (), ("-m", "package.module"))),
        ("python -c pass", None),
        ("python -", None),
        ("python", None),
        ("python -m", None),
        ("python -W", None),
        ("-m", None),
        ("bash run.sh", None),
        ("torchrun train.py", None),
        ("accelerate launch train.py", None),
        ("uv run train.py", None),
        ("hostname", None),
    ],
)
def test_python(line: str, expected: tuple[object, ...] | None) -> None:
    if line.endswith("train"):
        options = ("-uO", "-W", "ignore", "-Xdev")
        expected = ("/envs/a/bin/python3.12", options, ("train",))
    found = programs.python_program(launch_of(line))
    assert (found and (found.interpreter, found.options, found.target)) == expected


@pytest.mark.parametrize(
    "line",
    ["python -m torch.distributed.run a.py", "-m accelerate.commands.launch a.py", "ls a.py"],
)
def test_what_starts_ranks_itself_is_no_rank(line: str) -> None:
    assert not programs.is_rank(launch_of(line))
    assert programs.is_rank(launch_of("-m accelerated"))


ONE, TWO = "train.py has one rank, so it runs as it is", "train.py is Python, with 2 ranks"


@pytest.mark.parametrize(
    ("resources", "launch", "launcher", "reason"),
    [
        ({}, {}, "python", ONE),
        ({"gpus_per_node": 1}, {}, "python", ONE),
        ({"gpus_per_node": 2}, {}, "torchrun", f"{TWO} (one node)"),
        ({"gres": "gpu:a100:2"}, {}, "torchrun", f"{TWO} (one node)"),
        ({"nodes": 2}, {}, "torchrun", f"{TWO} (2 nodes x 1)"),
        ({"ntasks_per_node": 2}, {}, "torchrun", f"{TWO} (one node)"),
        ({"nodes": 2, "ntasks": 2}, {}, "torchrun", f"{TWO} (2 nodes x 1)"),
        ({"ntasks_per_node": 1, "gpus_per_node": 2}, {}, "torchrun", f"{TWO} (one node)"),
        ({}, {"nproc_per_node": 2}, "torchrun", f"{TWO} (one node)"),
        ({"gpus_per_node": 2}, {"nproc_per_node": 1}, "python", ONE),
        ({}, {"rendezvous": "c10d"}, "torchrun", "launch.rendezvous is set"),
        ({"gpus_per_node": 2}, {"launcher": "python"}, "python", ""),
        ({}, {"launcher": "torchrun"}, "torchrun", ""),
        ({"ntasks": 2}, {"launcher": "srun"}, "srun", ""),
    ],
)
def test_choice(
    resources: dict[str, object], launch: dict[str, object], launcher: str, reason: str
) -> None:
    flags = {f"resources.{key}": value for key, value in resources.items()}
    flags |= {f"launch.{key}": value for key, value in launch.items()}
    spec = specs.load(None, flags=flags, program=["train.py"])
    choice = ranks.choose(spec)
    assert (choice.launcher, choice.reason) == (launcher, reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hostname", "hostname is not a Python script or module, so it runs as it is"),
        ("python -c x", "python is not a Python script or module, so it runs as it is"),
        (
            "python -m torch.distributed.run train.py",
            "torch.distributed.run starts the ranks itself, so it runs as it is",
        ),
    ],
)
def test_anything_else_runs_as_it_is(line: str, reason: str) -> None:
    spec = specs.load(None, flags={"resources.gpus_per_node": 2}, program=shlex.split(line))
    assert ranks.choose(spec) == ranks.Choice(launcher="python", reason=reason)
    # It may use all GPUs.
    assert ranks.world_size(spec) == 2
    spec = dataclasses.replace(spec, resources=jobs.Resources(nodes=3))
    expected = f"{reason}, once, on the first of 3 nodes (srun starts it on each)"
    assert ranks.choose(spec).reason == expected


def test_an_exclusive_node_comes_with_all_its_gpus() -> None:
    spec = jobs.JobSpec(name="x", exclusive=True, launch=launch_of("python train.py"))
    assert ranks.choose(spec).launcher == "torchrun"
    assert (ranks.ranks_per_node(spec), ranks.known_world_size(spec)) == (None, None)


@pytest.mark.parametrize(
    ("line", "changes", "words"),
    [
        ("train.py x", {}, "python3 train.py x"),
        ("-m a.b x", {}, "python3 -m a.b x"),
        ("python -u train.py", {}, "python -u train.py"),
        ("-m torch.distributed.run a.py", {}, "python3 -m torch.distributed.run a.py"),
        ("hostname -s", {}, "hostname -s"),
        ("-c pass", {}, "python3 -c pass"),
        ("-u train.py", {"nproc_per_node": 2}, "torchrun: train.py"),
        ("-O train.py", {"nproc_per_node": 2}, "torchrun: --no-python python3 -O train.py"),
        ("python -u train.py -u", {"nproc_per_node": 2}, "torchrun: train.py -u"),
        ("/e/python -m a.b", {"nproc_per_node": 2}, "/e/python -m torch.distributed.run: -m a.b"),
        ("python -O a.py", {"nproc_per_node": 2}, "torchrun: --no-python python -O a.py"),
        ("./bench python", {"launcher": "torchrun"}, "torchrun: --no-python ./bench python"),
        ("python train.py", {"launcher": "torchrun"}, "torchrun: train.py"),
        ("python train.py", {"launcher": "python"}, "python train.py"),
    ],
)
def test_words_of_the_program(line: str, changes: dict[str, object], words: str) -> None:
    spec = jobs.JobSpec(name="x", launch=launch_of(line, **changes))
    part = specimens.rendered(spec).partition("# ---- Launch")[2]
    starter, _, program = words.rpartition(": ")
    last = part.partition(" orchestrator \\\n")[2].partition(" &\n")[0]
    assert last.strip() == program
    started = [*re.findall(r"^exec .*", part, re.MULTILINE), last]
    assert ("torch" in " ".join(started)) == ("torch" in words)
    assert not starter or f"\nexec {starter} --standalone" in part


@pytest.mark.parametrize(
    ("flags", "is_set"),
    [
        ({}, False),
        ({"resources.gpus_per_node": 1}, True),
        ({"resources.ntasks": 1}, True),
        ({"launch.nproc_per_node": "1"}, True),
        ({"resources.gpus_per_node": 2}, False),
        ({"resources.gpus_per_node": 1, "launch.launcher": "python"}, False),
    ],
)
def test_one_rank_that_was_asked_for_gets_torchruns_variables(
    flags: dict[str, object], is_set: bool
) -> None:
    spec = specs.load(None, flags=flags, program=["train.py"])
    assert ("export RANK=0 " in specimens.rendered(spec)) == is_set


@pytest.mark.parametrize(
    ("launch", "name"),
    [
        (launch_of("train.py --lr 1"), "train"),
        (launch_of("python -u /a/b/train.py"), "train"),
        (launch_of("python -m package.module"), "module"),
        (jobs.Launch(module="trainers.train"), "train"),
        (jobs.Launch(script="my script.py"), "my-script"),
        (launch_of("bash -x run.sh"), "run"),
        (launch_of("nohup python train.py"), "train"),
        (launch_of("torchrun --nproc-per-node 2 train.py"), "train"),
        (launch_of("./prog data.py"), "prog"),
        (launch_of("/bin/hostname"), "hostname"),
        (launch_of("2024.py"), "job-2024"),
        (launch_of("local-1.py"), "job-local-1"),
        (jobs.Launch(command=" A=1 B=2 ./prog x"), "prog"),
        (jobs.Launch(command="(cd x)"), "shell"),
        (jobs.Launch(), ""),
    ],
)
def test_a_job_is_named_after_its_program(launch: jobs.Launch, name: str) -> None:
    assert programs.name(launch) == name


def test_stored_specs_without_a_launcher_mean_torchrun() -> None:
    data = {"job": {"name": "x"}, "launch": {"script": "train.py"}}
    assert specs.from_json(json.dumps(data)).launch.launcher == "torchrun"
    old = specs.build(specs.stored(data, "old"), [], None)
    new = specs.build(specs.stored(specs.to_store(data), "new"), [], None)
    assert (old.launch.launcher, new.launch.launcher) == ("torchrun", "auto")
    assert specs.from_json(specs.to_json(new)) == new

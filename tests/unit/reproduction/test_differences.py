"""What two jobs differ in."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import environments, jobs, reproduction, specs
from orchestrator.reproduction.differences import flat
from orchestrator.specs import arguments, writing
from tests.unit.rendering import specimens

COMMIT = {"git_commit": "0123456789abcdef", "git_branch": "main"}


def run(spec: jobs.JobSpec | None = None, **fields: Any) -> reproduction.Run:
    known = {"name": "1", "provenance": COMMIT, "environment": environments.Environment()}
    return reproduction.Run(**{"spec": spec or jobs.JobSpec(name="x"), **known, **fields})


def found(first: reproduction.Run, second: reproduction.Run, diff: str | None = None) -> list[Any]:
    return [
        (each.section, each.key, each.first, each.second)
        for each in reproduction.differences(first, second, diff)
    ]


@pytest.mark.parametrize("name", list(specimens.SPECS))
def test_a_job_does_not_differ_from_itself(name: str) -> None:
    spec, _ = specimens.SPECS[name]
    assert found(run(spec), run(specs.from_json(specs.to_json(spec)))) == []


_VALUES = st.none() | st.sampled_from([0.1, 0.2, 1, True, "a"])


@given(st.fixed_dictionaries({"lr": _VALUES, "b": _VALUES}), st.dictionaries(st.just("b"), _VALUES))
def test_exactly_the_arguments_that_differ(first: dict[str, Any], changed: dict[str, Any]) -> None:
    before = {key: value for key, value in first.items() if value is not None}
    after = {k: v for k, v in {**first, **changed}.items() if v is not None}
    rows = found(
        run(jobs.JobSpec(name="x", launch=jobs.Launch(script="t.py"), args=before)),
        run(jobs.JobSpec(name="x", launch=jobs.Launch(script="t.py"), args=after)),
    )
    # 1 and True are equal for Python.
    if json.dumps(before) == json.dumps(after):
        assert rows == []
    else:
        assert rows == [("arguments", "args.b", before.get("b"), after.get("b"))]


def test_arguments_after_dashes_are_those_of_a_spec() -> None:
    typed = jobs.Launch(program=("train.py", "--batch-size", "8", "--amp"))
    spec = jobs.JobSpec(
        name="x", launch=jobs.Launch(script="train.py"), args={"batch_size": 8, "amp": True}
    )
    assert found(run(jobs.JobSpec(name="x", launch=typed)), run(spec)) == []
    off = dataclasses.replace(spec, args={**spec.args, "ema": False})
    assert found(run(spec), run(off)) == []
    shell = [jobs.Launch(program=("python", "-u", "t.py", word)) for word in "ab"]
    one, other = (run(jobs.JobSpec(name="x", launch=launch)) for launch in shell)
    rows = found(one, other)
    assert [row[:2] for row in rows] == [("arguments", "launch.program")]


def test_keys_are_those_of_a_spec() -> None:
    spec = jobs.JobSpec(name="x", environment=jobs.Environment(variables={"A.B": "1"}))
    assert 'environment.variables."A.B"' in flat(spec)
    changed = dataclasses.replace(spec, resources=jobs.Resources(mem="2G"), time_limit="5")
    assert found(run(spec), run(changed)) == [
        ("spec", "job.time_limit", None, "5"),
        ("spec", "resources.mem", None, "2G"),
    ]


def test_shell_lines_are_compared_line_by_line() -> None:
    first, second, none = (
        run(jobs.JobSpec(name="x", environment=jobs.Environment(setup=text)))
        for text in ("a\nb\n", "a\nc\n", None)
    )
    (row,) = reproduction.differences(first, second)
    assert (row.key, row.diff) == ("environment.setup", "@@ -1,3 +1,3 @@\n a\n-b\n+c\n \n")
    (row,) = reproduction.differences(none, second)
    assert (row.first, row.second, row.diff) == (None, "a\nc\n", None)


def snapshot(tree: str) -> jobs.JobSpec:
    code = jobs.Code(snapshot=True, tree=tree * 40, root=f"/home/{tree}", folder=".")
    return jobs.JobSpec(name="x", code=code)


def test_code_of_snapshots() -> None:
    first, second = run(snapshot("a")), run(snapshot("b"))
    elsewhere = dataclasses.replace(first.spec.code, root="/other")
    same = run(dataclasses.replace(first.spec, code=elsewhere), provenance={})
    assert found(first, same) == []
    (row,) = reproduction.differences(first, second, "the diff")
    assert (row.section, row.diff) == ("code", "the diff")
    assert row.first == "snapshot aaaaaaaaaaaa of commit 0123456789ab (main)"
    assert reproduction.unknown(first, run()) == [
        "Only 1 has a snapshot: there is no diff of the code."
    ]


def test_code_without_snapshots() -> None:
    clean, edited = run(), run(provenance={**COMMIT, "git_diff": "+one\n"})
    (row,) = reproduction.differences(clean, edited)
    digest = hashlib.sha256(b"+one\n").hexdigest()[:8]
    assert row.second == f"commit 0123456789ab with changes {digest} (main)"
    assert row.diff == "+one\n"
    (row,) = reproduction.differences(edited, run(provenance={**COMMIT, "git_diff": "+two\n"}))
    assert row.diff == "@@ -1,2 +1,2 @@\n-+one\n++two\n \n"
    (row,) = reproduction.differences(clean, run(provenance={**COMMIT, "git_commit": "f" * 40}))
    assert (row.first, row.second, row.diff) == (
        "commit 0123456789ab (main)",
        "commit ffffffffffff (main)",
        None,
    )


def test_what_is_not_recorded_is_no_difference() -> None:
    nothing = run(provenance={}, environment=None)
    assert found(nothing, nothing) == []
    assert reproduction.unknown(run(), nothing) == [
        "The code of 1 is not recorded: no snapshot and no git.",
        "The environment of 1 is not recorded.",
    ]


def test_environments() -> None:
    variables = {"NCCL_DEBUG": "INFO", "SLURM_NTASKS": "1", "OMP_NUM_THREADS": "1"}
    first = environments.Environment(packages={"torch": "2.6"}, variables=variables)
    second = dataclasses.replace(
        first,
        driver="550.1",
        modules=("cuda/12",),
        packages={"torch": "2.7"},
        variables={**variables, "NCCL_DEBUG": "WARN", "SLURM_NTASKS": "2"},
    )
    rows = found(run(environment=first), run(environment=second))
    assert rows == [
        ("environment", "variable NCCL_DEBUG", "INFO", "WARN"),
        ("environment", "package torch", "2.6", "2.7"),
        ("environment", "system driver", None, "550.1"),
        ("environment", "module cuda/12", None, ""),
    ]
    table = jobs.Environment(variables={"NCCL_DEBUG": "WARN"})
    named = run(jobs.JobSpec(name="x", environment=table), environment=second)
    rows = found(run(environment=first), named)
    assert ("spec", "environment.variables.NCCL_DEBUG", None, "WARN") in rows
    assert "variable NCCL_DEBUG" not in [key for _, key, _, _ in rows]


def test_images_of_containers() -> None:
    image = {"image": "a.sif", "sha256": "1" * 64, "sif_id": None, "size_bytes": 7}
    moved = {**image, "image": "b.sif"}
    assert found(run(provenance={"container": image}), run(provenance={"container": moved})) == []
    other = {**image, "sha256": None, "changed_at": "2026-01-01T00:00:00+00:00"}
    assert found(run(provenance={"container": image}), run(provenance={"container": other})) == [
        (
            "environment",
            "container image",
            f"SHA-256 {'1' * 64}",
            "7 bytes, changed 2026-01-01T00:00:00+00:00",
        )
    ]


def test_results() -> None:
    first = run(
        state="COMPLETED",
        exit="0:0",
        elapsed_seconds=100.0,
        metrics={("loss", ""): 0.5, ("throughput", "images/s"): 100.0, ("nan", ""): math.nan},
    )
    metrics = {**first.metrics, ("throughput", "images/s"): 104.0}
    faster = dataclasses.replace(first, elapsed_seconds=109.0, metrics=metrics)
    assert found(first, faster) == []
    slower = dataclasses.replace(faster, elapsed_seconds=200.0)
    rows = reproduction.differences(first, slower)
    assert [(row.key, row.relative, row.is_speed) for row in rows] == [
        ("duration_seconds", 1.0, True)
    ]
    assert not reproduction.differs(rows)
    failed = run(state="FAILED", exit="1:0", metrics={("loss", ""): 0.25})
    rows = reproduction.differences(first, failed)
    assert [(row.key, row.first, row.second) for row in rows[:3]] == [
        ("state", "COMPLETED", "FAILED"),
        ("exit", "0:0", "1:0"),
        ("loss", 0.5, 0.25),
    ]
    assert rows[2].relative == -0.5
    assert [row.key for row in rows[3:]] == ["nan", "throughput (images/s)"]
    assert reproduction.differs(rows)


def test_the_script_of_batch_files() -> None:
    spec = jobs.JobSpec(name="x", launch=jobs.Launch(batch_file="/x.sbatch"))
    head = "# Made by orchestrator 1 from x\n"
    first = run(spec, script=f"{head}one\n")
    assert found(first, run(spec, script="# Made by orchestrator 2 from y\none\n")) == []
    (row,) = reproduction.differences(first, run(spec, script=f"{head}two\n"))
    assert (row.key, row.diff) == ("script", "@@ -1,2 +1,2 @@\n-one\n+two\n \n")


@pytest.mark.parametrize("name", list(specimens.SPECS))
def test_a_written_spec_describes_the_same_job(name: str, tmp_path: Any) -> None:
    spec, _ = specimens.SPECS[name]
    if spec.launch.batch_file is not None:
        pytest.skip("a batch file is no spec")
    # One has a path that a spec refuses.
    spec = dataclasses.replace(spec, output=None, error=None)
    path = tmp_path / "job.toml"
    path.write_text(writing.text(writing.of_spec(spec, "x"), ["orchestrator submit job.toml"]))
    code = dataclasses.replace(spec.code, tree=None, root=None, folder=None, python_paths=())
    loaded = specs.load(path, folder=None)
    assert flat(loaded) == flat(dataclasses.replace(spec, code=code))


def test_a_task_alone_has_the_command_line_of_the_array() -> None:
    spec = jobs.JobSpec(
        name="x",
        launch=jobs.Launch(script="t.py"),
        args={"a_b": 1, "c": 2},
        array=jobs.Array(tasks=({"a-b": 5}, {"d": True})),
    )
    words = arguments.of_tasks(spec)
    assert words is not None
    shared = [word for pair in arguments.shared(spec) for word in pair]
    for task in (0, 1):
        alone = arguments.of_task(spec, task)
        assert alone.array == jobs.Array()
        assert [w for pair in arguments.shared(alone) for w in pair] == shared + words[task]
    assert arguments.of_task(spec, None) is spec

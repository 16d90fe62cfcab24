"""Plans: each point is submitted once, in arrays that Slurm accepts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import config, jobs, specs, sweeps
from orchestrator.rendering import job_script, templates
from orchestrator.specs import arguments, checks

Expand = Callable[..., sweeps.Sweep]

GRID = """\
[sweep]
kind = "grid"
[sweep.axes]
args.seed = [{}]
args.precision = ["fp32", "bf16"]
"""


def numbers(count: int) -> str:
    return ", ".join(map(str, range(count)))


def test_2500_points_are_three_submissions(expand: Expand, profile: config.Profile) -> None:
    sweep = expand(GRID.format(numbers(1250)))
    plan = sweeps.plan(sweep.points, 1001)
    assert [len(array.points) for array in plan] == [1001, 1001, 498]
    assert sweeps.total(sweep.points) == sweeps.ResourceTotals(points=2500, node_hours=2500.0)
    # MaxArraySize is one more than the largest index.
    assert plan[0].spec.array.task_ids == range(1001)


def test_arrays_within_a_submit_limit(expand: Expand, profile: config.Profile) -> None:
    sweep = expand(GRID.format(numbers(4)))
    plan = sweeps.plan(sweep.points, 3, max_running=2)
    assert [len(array.points) for array in plan] == [3, 3, 2]
    assert [array.spec.array.max_running for array in plan] == [2, 2, None]


def test_arrays_within_the_size_of_a_script(expand: Expand, profile: config.Profile) -> None:
    long = ", ".join(f'"{letter * 2000}$\\u00e9\\""' for letter in "abcdefgh")
    sweep = expand(f'[sweep]\nkind = "grid"\naxes.args.note = [{long}]\n')
    plan = sweeps.plan(sweep.points, 1001, max_bytes=7000)
    assert [len(array.points) for array in plan] == [3, 3, 2]
    scripts = [script(array.spec, profile) for array in plan]
    alone = script(dataclasses.replace(plan[0].spec, array=jobs.Array()), profile)
    assert all(len(text.encode()) - len(alone.encode()) < 7300 for text in scripts)


def test_arguments_shared_by_the_tasks_of_an_array(expand: Expand, profile: config.Profile) -> None:
    points = "{ args.lr = 1 }, { args.lr = 1.0, args.batch-size = 8 }, { resources.nodes = 2 }"
    sweep = expand(f'[sweep]\nkind = "list"\npoints = [{points}]\n')
    plan = sweeps.plan(sweep.points, 10)
    array, alone = (array.spec for array in plan)
    assert array.args == {"epochs": 10}
    assert array.array.tasks == ({"batch_size": 1024, "lr": 1}, {"lr": 1.0, "batch_size": 8})
    assert (alone.resources.nodes, alone.array) == (2, jobs.Array())


def test_repeats_of_a_command_are_an_array_without_arguments(
    expand: Expand, profile: config.Profile
) -> None:
    head = '[job]\nname = "a"\n[launch]\ncommand = "hostname"\n'
    sweep = expand('[sweep]\nkind="strong"\nnodes=[1, 2]\nrepeats = 3\n', head)
    plan = sweeps.plan(sweep.points, 10)
    assert [array.spec.array for array in plan] == [jobs.Array(size=3)] * 2
    assert [[point.repeat for point in array.points] for array in plan] == [[1, 2, 3]] * 2


@settings(max_examples=25, deadline=None)
@given(
    seeds=st.integers(1, 6),
    nodes=st.sets(st.integers(1, 4), min_size=1),
    repeats=st.integers(1, 3),
    most=st.integers(1, 9),
    data=st.data(),
)
def test_each_point_is_submitted_once_with_its_own_arguments(
    expand: Expand,
    profile: config.Profile,
    seeds: int,
    nodes: set[int],
    repeats: int,
    most: int,
    data: st.DataObject,
) -> None:
    text = GRID.format(numbers(seeds)) + f"resources.nodes = {sorted(nodes)}\n"
    head = '[job]\nname = "a"\n[launch]\nmodule = "other"\n[args]\nepochs = 1\n'
    sweep = expand(text.replace("[sweep.axes]", f"repeats = {repeats}\n[sweep.axes]"), head)
    # Those that are missing of a sweep are planned in the same way.
    expected = data.draw(
        st.lists(st.sampled_from(sweep.points), unique_by=lambda item: item.identity)
    )
    plan = sweeps.plan(expected, most)
    result = [point.identity for array in plan for point in array.points]
    assert sorted(result) == sorted(point.identity for point in expected)
    for array in plan:
        assert len(array.points) <= most
        assert [*checks.findings(array.spec)] == []
        for task, point in enumerate(array.points):
            assert words(array.spec, task) == sorted(arguments.shared(point.spec))
            assert dataclasses.replace(array.spec, args={}, array=jobs.Array()) == (
                dataclasses.replace(point.spec, args={})
            )


def script(spec: jobs.JobSpec, profile: config.Profile) -> str:
    origin = templates.Origin(version="1", spec="sweep.toml")
    return job_script.render(spec, profile, runs_dir=Path("/runs"), origin=origin).text


def words(spec: jobs.JobSpec, task: int) -> list[tuple[str, ...]]:
    """Return the arguments of one task as the script gives them."""
    own = (arguments.of_tasks(spec) or [[]] * (task + 1))[task]
    return sorted([*arguments.shared(spec), *zip(own[::2], own[1::2], strict=True)])


def test_a_planned_array_renders(expand: Expand, profile: config.Profile) -> None:
    sweep = expand(GRID.format("1, 2"))
    (one,) = sweeps.plan(sweep.points, 9)
    assert specs.from_json(specs.to_json(one.spec)) == one.spec
    text = script(one.spec, profile)
    assert "#SBATCH --array=0-3" in text
    assert re.findall(r"--precision \w+ --seed \d|--seed \d --precision \w+", text) == [
        "--precision fp32 --seed 1",
        "--precision fp32 --seed 2",
        "--precision bf16 --seed 1",
        "--precision bf16 --seed 2",
    ]

"""Points of each kind of sweep; the same file gives the same points."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import config, sweeps
from orchestrator.specs import ranks
from tests.unit.sweeps import conftest

Expand = Callable[..., sweeps.Sweep]
Refused = Callable[..., str]


def changes(sweep: sweeps.Sweep) -> list[tuple[object, ...]]:
    return [tuple(point.changes.values()) for point in sweep.points]


def test_strong_scaling_fills_nodes_and_fixes_the_global_batch(expand: Expand) -> None:
    sweep = expand('[sweep]\nkind = "strong"\ngpus = [1, 2, 4, 8, 16]\n')
    asked = [point.spec.resources for point in sweep.points]
    assert [(item.nodes, item.gpus_per_node) for item in asked] == [
        (1, 1),
        (1, 2),
        (1, 4),
        (2, 4),
        (4, 4),
    ]
    assert {point.spec.args["batch_size"] for point in sweep.points} == {1024}
    assert [ranks.world_size(point.spec) for point in sweep.points] == [1, 2, 4, 8, 16]
    assert [point.settings for point in sweep.points[:2]] == [{"gpus": 1}, {"gpus": 2}]
    assert [point.name for point in sweep.points[:2]] == ["gpus1-f2de6dfa", "gpus2-3be60e83"]
    assert sweeps.total(sweep.points) == sweeps.ResourceTotals(
        points=5, gpu_hours=31.0, node_hours=9.0
    )


def test_weak_scaling_fixes_the_batch_of_each_gpu(expand: Expand, refused: Refused) -> None:
    text = '[sweep]\nkind = "weak"\ngpus = [1, 8]\nper_device_batch_size = 64\n'
    assert refused(text).splitlines()[0] == (
        "sweep.toml:8: args.batch_size: weak scaling fixes the batch of each GPU, but this is "
        'the global batch: remove it, or set sweep.batch_argument = "batch_size" if it is the '
        "batch of each GPU"
    )
    head = '[job]\nname = "a"\npartition = "accel"\n[launch]\nmodule = "trainers.train"\n'
    sweep = expand(text, head)
    assert changes(sweep) == [(1, 1, 64), (2, 4, 64)]
    # A program that is message the global batch alone.
    other = 'batch_argument = "bs"\nbatch_argument_of = "global"\n'
    assert changes(expand(text + other, head)) == [(1, 1, 64), (2, 4, 512)]


def test_strong_scaling_with_a_batch_argument_per_gpu(expand: Expand) -> None:
    sweep = expand(
        '[sweep]\nkind = "strong"\ngpus = [1, 8]\nbatch_size = 512\n'
        'batch_argument = "bs"\nbatch_argument_of = "gpu"\n'
    )
    assert [point.spec.args["bs"] for point in sweep.points] == [512, 64]


def test_strong_scaling_over_nodes_without_gpus(expand: Expand, refused: Refused) -> None:
    text = '[sweep]\nkind = "strong"\n{} = [1, 2, 4]\nrepeats = 3\n'
    sweep = expand(text.format("nodes"))
    assert [point.spec.resources.nodes for point in sweep.points] == [1, 2, 4] * 3
    assert [point.repeat for point in sweep.points] == [1] * 3 + [2] * 3 + [3] * 3
    cpus = (
        '[job]\nname = "a"\n[resources]\ngpus_per_node = 0\n[launch]\nmodule = "trainers.train"\n'
    )
    assert "resources.gpus_per_node gives no GPUs: use nodes instead of gpus" in refused(
        text.format("gpus"), cpus
    )


def test_indivisible_batches_and_sizes(refused: Refused) -> None:
    message = refused('[sweep]\nkind = "strong"\ngpus = [3, 4, 6, 12]\nbatch_size = 1000\n')
    assert (
        message
        == """\
sweep.toml:12: sweep.gpus[0]: a global batch of 1000 cannot be divided among 3 GPUs: use 999 or 1002
sweep.toml:12: sweep.gpus[2]: 6 GPUs are not a whole number of nodes with 4 each: use 4 or 8
sweep.toml:12: sweep.gpus[3]: a global batch of 1000 cannot be divided among 12 GPUs: use 996 or \
1008
3 problems; nothing was submitted."""
    )
    message = refused('[sweep]\nkind = "batch"\nbatch_sizes = [64, 2]\naxes.gpus = [4]\n')
    assert "a global batch of 2 cannot be divided among 4 GPUs: use 4" in message


def test_points_stored_by_an_earlier_version(expand: Expand) -> None:
    """They have the arguments of `[args]` as the file spells them."""
    head = conftest.HEAD.replace("batch_size", "batch-size")
    points = expand('[sweep]\nkind = "grid"\naxes.args.base-lr = [0.1, 0.2]\n', head).points
    for point in points:
        text = point.shape.spec
        shape = dataclasses.replace(point.shape, spec=text.replace("batch_size", "batch-size"))
        assert shape.spec != text
        fields = {name: getattr(point, name) for name in ("name", "identity", "settings")}
        stored = sweeps.StoredPoint(
            number=1, repeat=1, changes=point.changes, shape=shape, job=None, **fields
        )
        assert [each.spec for each in sweeps.points_of([stored])] == [point.spec]


def test_a_retry_changes_an_argument_that_only_the_sweep_sets(expand: Expand) -> None:
    retry = '[retry]\nmax_retries = 1\nchanges.oom_device."args.width" = "x0.5"\n'
    sweep = expand('[sweep]\nkind = "grid"\naxes.args.width = [64, 128]\n' + retry)
    assert [point.spec.args["width"] for point in sweep.points] == [64, 128]


def test_partition_limits_are_reported_at_the_axis(refused: Refused) -> None:
    text = '[sweep]\nkind = "grid"\n[sweep.axes]\nresources.gpus_per_node = [4, 8]\n'
    text += 'job.time_limit = ["1:00:00", "3-00"]\n'
    assert (
        refused(text)
        == """\
sweep.toml:13: resources.gpus_per_node: partition accel has 4 GPUs per node (requested: 8)
sweep.toml:14: job.time_limit: partition accel allows 2-00 (requested: 3-00)
2 problems; nothing was submitted."""
    )


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ('[launch]\nmodule = "a"\nnproc_per_node = 2\n', "launch.nproc_per_node"),
        (
            '[launch]\nmodule = "a"\nlauncher = "srun"\n[resources]\nntasks = 2\n',
            "resources.ntasks",
        ),
        (
            '[launch]\nmodule = "a"\nlauncher = "srun"\n[resources]\nntasks_per_node = 2\n',
            "resources.ntasks_per_node",
        ),
    ],
)
def test_keys_that_fix_the_ranks(refused: Refused, resources: str, message: str) -> None:
    head = '[job]\nname = "a"\npartition = "accel"\n' + resources
    assert f": {message}: sets the ranks" in refused('[sweep]\nkind="grid"\naxes.gpus=[1, 4]', head)


def test_python_on_several_nodes(refused: Refused) -> None:
    head = '[job]\nname = "a"\npartition = "accel"\n[launch]\nmodule = "a"\nlauncher = "python"\n'
    message = refused('[sweep]\nkind = "grid"\naxes.gpus = [2, 8]', head)
    assert message.splitlines()[:-1] == [
        "sweep.toml:9: sweep.axes.gpus[1]: python starts one process, on the first of 2 nodes: use "
        "the launcher torchrun or srun"
    ]


def test_all_sizes_of_a_study_have_the_same_launcher(expand: Expand) -> None:
    head = '[job]\nname = "a"\npartition = "accel"\n[launch]\n'
    sizes = '[sweep]\nkind = "grid"\naxes.gpus = [1, 2]\n'
    for launch, launcher in (
        ('script = "train.py"\n', "torchrun"),
        ('program = ["python", "train.py"]\n', "torchrun"),
        ('program = ["bash", "run.sh"]\n', "auto"),
        ('launcher = "srun"\nscript = "train.py"\n', "srun"),
    ):
        points = expand(sizes, head + launch).points
        assert [point.spec.launch.launcher for point in points] == [launcher] * 2
    # Other sweeps leave the choice to each job.
    (point,) = expand(
        '[sweep]\nkind = "grid"\naxes.args.lr = [1]\n', head + 'script = "a.py"\n'
    ).points
    assert point.spec.launch.launcher == "auto"


def test_commands_take_no_arguments(refused: Refused) -> None:
    head = '[job]\nname = "a"\n[launch]\ncommand = "hostname"\n'
    message = refused('[sweep]\nkind = "list"\npoints = [{}, { args.a = 1 }]\n', head)
    assert "sweep.points[1].args.a: cannot be varied" in message
    message = refused('[sweep]\nkind = "strong"\nnodes = [1]\nbatch_size = 8\n', head)
    assert "sweep.batch_size: cannot go with launch.command, which takes no arguments" in message


def test_lists_zips_workers_and_batches(expand: Expand) -> None:
    points = "points = [{ args.a = 1, resources.nodes = 2 }, { args.b = [1, 2] }, {}]\n"
    sweep = expand(f'[sweep]\nkind = "list"\n{points}')
    assert [dict(point.changes) for point in sweep.points] == [
        {"resources.nodes": 2, "args.a": 1},
        {"args.b": (1, 2)},
        {},
    ]
    assert sweep.points[1].spec.args == {"batch_size": 1024, "epochs": 10, "b": (1, 2)}
    text = '[sweep]\nkind = "zip"\naxes.args.a = [1, 2]\naxes.args.b = [3, 4]\n'
    assert changes(expand(text)) == [(1, 3), (2, 4)]
    text = '[sweep]\nkind = "workers"\nworkers = [0, 4]\naxes.args.a = [1, 2]\n'
    assert changes(expand(text)) == [(0, 1), (0, 2), (4, 1), (4, 2)]
    sweep = expand('[sweep]\nkind = "batch"\nbatch_sizes = [64, 128]\n')
    assert [point.spec.args for point in sweep.points] == [
        {"epochs": 10, "batch_size": 64},
        {"epochs": 10, "batch_size": 128},
    ]


def test_node_size_of_each_partition(expand: Expand) -> None:
    profile = config.Profile(
        partitions={"a": config.Partition(gpus_per_node=2), "b": config.Partition(gpus_per_node=8)}
    )
    text = '[sweep]\nkind = "grid"\naxes.gpus = [8]\naxes.job.partition = ["a", "b"]\n'
    result = [point.spec.resources for point in expand(text, profile=profile).points]
    assert [(item.nodes, item.gpus_per_node) for item in result] == [(4, 2), (1, 8)]


DRAWN: list[tuple[object, ...]] = [
    (1, 0.0213605, 0.970964, "sgd"),
    (1, 0.000388438, 0.957236, "adamw"),
    (3, 0.00235037, 0.97451, "adamw"),
]


def test_draws_never_change(expand: Expand) -> None:
    text = """\
[sweep]
kind = "random"
samples = {}
seed = 7
axes.args.lr = {{ log_uniform = [1e-4, 1e-1] }}
axes.args.momentum = {{ uniform = [0.8, 0.99] }}
axes.args.depth = {{ integers = [1, 3] }}
axes.args.optimizer = {{ choice = ["sgd", "adamw"] }}
"""
    three = expand(text.format(3))
    assert changes(three) == DRAWN
    # More samples begin with those; another axis leaves them as they are.
    assert expand(text.format(30)).points[:3] == three.points
    extra = expand(text.format(3) + "axes.args.extra = { uniform = [0, 1] }\n")
    assert [point.spec.args["lr"] for point in extra.points] == [row[1] for row in DRAWN]


KEYS = ("args.a", "args.b", "args.c", "resources.nodes")


@st.composite
def grids(draw: st.DrawFn) -> dict[str, list[int]]:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    numbers = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True)
    return {key: draw(numbers) for key in keys}


def text_of(axes: dict[str, list[int]]) -> str:
    lines = [f'"{key}" = {values}\n' for key, values in axes.items()]
    return "[sweep.axes]\n" + "".join(lines)


@settings(max_examples=25, deadline=None)
@given(axes=grids(), data=st.data(), repeats=st.integers(1, 3))
def test_grid_has_each_combination_once_in_its_own_order(
    expand: Expand, axes: dict[str, list[int]], data: st.DataObject, repeats: int
) -> None:
    head = f'[sweep]\nkind = "grid"\nrepeats = {repeats}\n'
    head = head.replace("[sweep]", "[args]\nepochs = 1\n[sweep]")
    base = '[job]\nname = "a"\n[launch]\nmodule = "other"\n'
    sweep = expand(head + text_of(axes), base)
    shuffled = dict(data.draw(st.permutations([*axes.items()])))
    assert expand(head + text_of(shuffled), base).points == sweep.points
    expected = {
        frozenset(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    }
    combinations = [(frozenset(point.changes.items()), point.repeat) for point in sweep.points]
    assert len(combinations) == len(expected) * repeats
    assert set(combinations) == set(itertools.product(expected, range(1, repeats + 1)))
    for unique in ("identity", "name"):
        assert len({getattr(point, unique) for point in sweep.points}) == len(combinations)


@settings(max_examples=25, deadline=None)
@given(axes=grids(), data=st.data())
def test_exclude_and_include(
    expand: Expand, axes: dict[str, list[int]], data: st.DataObject
) -> None:
    base = '[job]\nname = "a"\n[launch]\nmodule = "other"\n'
    key = data.draw(st.sampled_from([*axes]))
    value = data.draw(st.sampled_from(axes[key]))
    whole = expand('[sweep]\nkind = "grid"\n' + text_of(axes), base).points
    out = f'[sweep]\nkind = "grid"\nexclude = [{{ "{key}" = {value} }}]\n'
    back = [dict(point.changes) for point in whole if point.changes[key] == value]
    written = ", ".join(
        "{ " + ", ".join(f'"{name}" = {number}' for name, number in item.items()) + " }"
        for item in back
    )
    both = expand(f"{out}include = [{written}]\n" + text_of(axes), base).points
    # Each point is unchanged, at any position.
    assert sorted(point.identity for point in both) == sorted(point.identity for point in whole)
    kept = [point for point in whole if point.changes[key] != value]
    assert [point.identity for point in both[: len(kept)]] == [point.identity for point in kept]

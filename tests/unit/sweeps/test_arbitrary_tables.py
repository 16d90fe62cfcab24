"""Arbitrary tables give a sweep or problems, never another error."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import config, errors, sweeps
from orchestrator.specs import checks
from orchestrator.toml import documents, schema

SCALARS = (
    st.integers(-3, 20)
    | st.floats()
    | st.booleans()
    | st.sampled_from(["grid", "zip", "list", "random", "strong", "weak", "batch", "workers", ""])
    | st.text(max_size=3)
)
KEYS = st.sampled_from(
    "gpus args.a args.batch-size args resources.nodes nodes job.partition environment.variables.A "
    "environment.variables launch.nproc_per_node uniform resources.gres sbatch.hint choice "
    "integers . args.a.b job.labels".split(" ")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
DRAWS = st.dictionaries(
    st.sampled_from(["uniform", "log_uniform", "integers", "choice"]),
    st.lists(SCALARS, min_size=1, max_size=2),
    min_size=1,
    max_size=1,
)
TABLES = st.dictionaries(
    KEYS, st.lists(SCALARS, min_size=1, max_size=3) | DRAWS | VALUES, max_size=3
)
PLAIN = sorted(set(schema.fields_of(sweeps.Table)) - {"axes", "points", "include", "exclude"})
SWEEPS = st.builds(
    lambda kind, nested, plain: {**plain, **nested, "kind": kind},
    SCALARS | st.sampled_from(["grid", "zip", "list", "random", "strong", "weak", "batch"]),
    st.fixed_dictionaries(
        {},
        optional={
            "axes": TABLES | VALUES,
            "points": st.lists(TABLES, max_size=3) | VALUES,
            "include": st.lists(TABLES, max_size=2) | VALUES,
            "exclude": st.lists(TABLES, max_size=2) | VALUES,
        },
    ),
    st.dictionaries(
        st.sampled_from(PLAIN), SCALARS | st.lists(st.integers(0, 9), max_size=3), max_size=3
    ),
)
# Valid tables whose jobs may be invalid.
VARIED = {
    "gpus": st.integers(1, 6),
    "args.a": SCALARS | st.lists(st.integers(0, 3), max_size=2),
    "args.batch-size": st.integers(-1, 64) | SCALARS,
    "args.per_device_batch_size": st.integers(0, 9),
    "resources.nodes": st.integers(0, 3),
    "resources.gpus_per_node": st.integers(0, 3),
    "resources.gres": st.sampled_from(["gpu:2", "gpu", "x y"]),
    "job.partition": st.sampled_from(["p", "q", "p,q", "r", ""]),
    "job.time_limit": st.sampled_from(["1", "0", "9-00", "x"]) | st.integers(0, 9),
    "launch.launcher": st.sampled_from(["torchrun", "srun", "python"]),
    "launch.command": st.sampled_from(["hostname", ""]),
    "launch.nproc_per_node": st.sampled_from([1, 2, "auto"]),
    "environment.variables.A": st.sampled_from(["1", "2"]),
    "sbatch.hint": st.booleans(),
}
FEW = st.lists(st.sampled_from([*VARIED]), unique=True, max_size=3)
AXES = FEW.flatmap(
    lambda keys: st.fixed_dictionaries(
        {key: st.lists(VARIED[key], min_size=1, max_size=3) for key in keys}
    )
)
POINT = FEW.flatmap(lambda keys: st.fixed_dictionaries({key: VARIED[key] for key in keys}))
POINTS = st.lists(POINT, max_size=2)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=3)
BATCH: dict[str, st.SearchStrategy[Any]] = {
    "batch_argument": st.sampled_from(["bs", "batch-size"]),
    "batch_argument_of": st.sampled_from(["global", "gpu"]),
    "batch_size": st.integers(1, 64),
}
NEEDED: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "grid": {"axes": AXES},
    "zip": {"axes": AXES},
    "list": {"points": POINTS},
    "random": {
        "samples": st.integers(1, 4),
        "axes": st.dictionaries(st.sampled_from([*VARIED]), DRAWS, min_size=1, max_size=3),
    },
    "strong": {"gpus": SIZES, **BATCH},
    "weak": {"nodes": SIZES, "per_device_batch_size": st.integers(1, 9)},
    "batch": {"batch_sizes": SIZES, "axes": AXES},
    "workers": {"workers": SIZES},
}
PLAUSIBLE = st.sampled_from([*NEEDED]).flatmap(
    lambda kind: st.fixed_dictionaries(
        {"kind": st.just(kind), **NEEDED[kind]},
        optional={
            "include": POINTS,
            "exclude": st.lists(POINT, max_size=1),
            "repeats": st.integers(1, 3),
        },
    )
)
BASES = st.fixed_dictionaries(
    {},
    optional={
        "job": st.just({"name": "a", "partition": "p"}) | VALUES,
        "args": st.just({"batch_size": 64}) | st.dictionaries(KEYS, SCALARS, max_size=2),
        "resources": st.just({"gpus_per_node": 2}) | VALUES,
        "launch": st.just({"module": "trainers.train"}) | VALUES,
    },
)
GOOD = {
    "job": {"name": "a", "partition": "p", "time_limit": "1:00:00"},
    "launch": {"module": "trainers.train"},
}
PROFILE = config.Profile(
    partitions={"p": config.Partition(gpus_per_node=2), "q": config.Partition(gpus_per_node=4)}
)


@settings(max_examples=50, deadline=None)
@given(base=BASES, sweep=SWEEPS | VALUES)
def test_any_table(base: dict[str, Any], sweep: object) -> None:
    check({**base, "sweep": sweep})


@settings(max_examples=50, deadline=None)
@given(args=st.sampled_from([{}, {"batch_size": 60}]), sweep=PLAUSIBLE)
def test_tables_that_may_be_a_sweep(args: dict[str, Any], sweep: object) -> None:
    check({**GOOD, "args": args, "sweep": sweep})


def check(data: dict[str, Any]) -> None:
    origin = documents.Origin(source="sweep.toml", line=1)
    try:
        result = sweeps.expand(documents.Document(data=data, origins={(): origin}), PROFILE)
    except errors.SpecError as error:
        assert error.problems
        return
    plan = sweeps.plan(result.points, 2)
    planned = [point.identity for array in plan for point in array.points]
    assert sorted(planned) == sorted({point.identity for point in result.points})
    for array in plan:
        assert [*checks.findings(array.spec)] == []

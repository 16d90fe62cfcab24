"""The [sweep] table and its problems, with their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import config, errors, sweeps

Refused = Callable[..., str]


def test_spellings_of_an_axis(expand: Callable[..., sweeps.Sweep]) -> None:
    ways = (
        'axes."args.base_lr" = [0.1, 0.2]',
        "axes.args.base_lr = [0.1, 0.2]",
        "axes = { args = { base-lr = [0.1, 0.2] } }",
    )
    result = [expand(f'[sweep]\nkind = "grid"\n{way}') for way in ways]
    assert [point.identity for point in result[0].points] == ["8b1eddd34fd7", "b8517c19e3d0"]
    assert result[0].points == result[1].points == result[2].points


def test_reports_all_problems_with_their_lines(refused: Refused) -> None:
    text = """\
[sweep]
kind = "grid"
sampels = 3
seed = 1
repeats = 0
gpus = [1, "2"]
[sweep.axes]
nodes = [1, 2]
"resources.gpu_per_node" = [1]
"args.base_lr" = 0.1
"args.depth" = { choice = [1, 2] }
"array.size" = [2]
gpus = [0]
"""
    assert (
        refused(text)
        == """\
sweep.toml:12: sweep.sampels: unknown key. Did you mean "samples"?
sweep.toml:13: sweep.seed: is only for kind "random", and this sweep is of kind "grid"
sweep.toml:14: sweep.repeats: must be >= 1 (got 0)
sweep.toml:15: sweep.gpus: must be a list of integers (got [1, "2"])
sweep.toml:15: sweep.gpus: is only for kind "strong" and "weak", and this sweep is of kind "grid"
sweep.toml:17: sweep.axes.nodes: unknown key. It belongs to [resources]. An argument of the \
program is "args.nodes".
sweep.toml:18: sweep.axes."resources.gpu_per_node": unknown key. Did you mean "gpus_per_node"? An \
argument of the program is "args.gpu_per_node".
sweep.toml:19: sweep.axes."args.base_lr": must be a list of values (got 0.1)
sweep.toml:20: sweep.axes."args.depth": is a distribution, which is only for kind "random"
sweep.toml:21: sweep.axes."array.size": a sweep creates its own arrays: remove this
sweep.toml:22: sweep.axes.gpus: must be a positive number of GPUs (got 0)
11 problems; nothing was submitted."""
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "sweep.toml: sweep: is missing: a sweep needs this table and its kind"),
        (
            "[sweep]\n",
            'sweep.toml:10: sweep.kind: is missing: one of "grid", "zip", "list", "random", '
            '"strong", "weak", "batch", "workers"',
        ),
        (
            '[sweep]\nkind = "gird"\n',
            'sweep.toml:11: sweep.kind: must be one of "grid", "zip", "list", "random", "strong", '
            '"weak", "batch", "workers" (got "gird"). Did you mean "grid"?',
        ),
        (
            '[sweep]\nkind = ["grid"]\n',
            'sweep.toml:11: sweep.kind: must be one of "grid", "zip", "list", "random", "strong", '
            '"weak", "batch", "workers" (got ["grid"])',
        ),
        (
            '[sweep]\nkind = "list"\n',
            'sweep.toml:10: sweep.points: is missing: kind "list" needs it',
        ),
        (
            '[sweep]\nkind = "weak"\n',
            'sweep.toml:10: sweep.gpus: is missing: kind "weak" needs gpus or nodes',
        ),
        (
            '[sweep]\nkind = "weak"\nnodes = [1]\ngpus_per_node = 2\n',
            "sweep.toml:13: sweep.gpus_per_node: is only for sweeps that vary gpus",
        ),
        (
            '[sweep]\nkind = "zip"\naxes.args.a = [1, 2]\naxes.args.b = [1]\n',
            'sweep.toml:13: sweep.axes.args.b: has 1 values, and args.a 2: axes of kind "zip" need '
            "the same number of values",
        ),
        (
            '[sweep]\nkind = "strong"\ngpus = [1]\naxes.args.batch-size = [1]\n',
            "sweep.toml:13: sweep.axes.args.batch-size: cannot be an axis: kind "
            '"strong" fixes the batch',
        ),
        (
            '[sweep]\nkind = "grid"\naxes.args.a = [1]\nexclude = [{ args.a = 2 }]\n',
            "sweep.toml:13: sweep.exclude[0]: no point has these values; the sweep varies args.a",
        ),
        (
            '[sweep]\nkind = "grid"\naxes.args.a = [1, 2, 1]\n',
            "sweep.toml:12: sweep.axes.args.a[2]: the point (args.a = 1) is given twice, first "
            "as (args.a = 1)",
        ),
        (
            '[sweep]\nkind = "list"\npoints = [{ args.a = 1 }, {}]\ninclude = [{}]\n',
            "sweep.toml:10: sweep: the point (the spec unchanged) is given twice, first as "
            "(the spec unchanged)",
        ),
        (
            '[sweep]\nkind = "random"\nsamples = 0\naxes.args.a = { choice = [1, 2] }\n',
            "sweep.toml:12: sweep.samples: must be >= 1 (got 0)",
        ),
        (
            '[sweep]\nkind = "grid"\naxes = []\n',
            "sweep.toml:12: sweep.axes: must be a table of keys and their values (got [])",
        ),
        (
            '[sweep]\nkind = "random"\nsamples = 3\naxes.args.a = { choice = [1, 2] }\n',
            "sweep.toml:12: sweep.samples: only 2 different points were drawn: request fewer, or "
            'use kind "grid" for all combinations',
        ),
        (
            '[sweep]\nkind = "random"\nsamples = 3\naxes.args.a = { log_uniform = [0, 1] }\n',
            "sweep.toml:13: sweep.axes.args.a: log_uniform needs two numbers [LOW, HIGH], "
            "0 < LOW < HIGH (got [0, 1])",
        ),
        (
            '[sweep]\nkind = "random"\nsamples = 3\naxes.args.a = { uniform = [-1e308, 1e308] }\n',
            "sweep.toml:13: sweep.axes.args.a: uniform needs two numbers [LOW, HIGH], "
            "LOW < HIGH < LOW + 1e308 (got [-1e+308, 1e+308])",
        ),
        (
            '[sweep]\nkind = "grid"\naxes.args.a = [1]\nmax_gpu_hours = nan\n',
            "sweep.toml:13: sweep.max_gpu_hours: must be a number (got nan)",
        ),
        (
            '[sweep]\nkind = "random"\nsamples = 3\naxes.gpus = { uniform = [1, 2] }\n',
            "sweep.toml:13: sweep.axes.gpus: GPUs can only be drawn by { integers = [LOW, HIGH] } "
            "or { choice = [...] }",
        ),
        (
            '[sweep]\nkind = "grid"\naxes.args.a = [1]\nmax_gpu_hours = 0.5\n'
            "axes.resources.gpus_per_node = [1]\n",
            "sweep.toml:13: sweep.max_gpu_hours: the sweep requests 1 GPU-hours, which is more "
            "than this",
        ),
        (
            '[sweep]\nkind = "grid"\naxes.job.time_limit = ["1", "soon"]\n',
            'sweep.toml:12: job.time_limit: must be minutes or a time such as "30", "1:30:00", '
            '"2-00" or "UNLIMITED" (got "soon")',
        ),
        (
            '[sweep]\nkind = "grid"\n[sweep.axes]\n'
            + "\n".join(f"args.a{number} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for number in range(9)),
            "sweep.toml:10: sweep: has 1000000000 points: at most 100000 are allowed",
        ),
    ],
)
def test_problem(refused: Refused, text: str, problem: str) -> None:
    assert refused(text).splitlines()[:-1] == [problem]


def test_settings_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: config.Profile
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("sweep.toml")
    path.write_text(
        '[job]\nname = "a"\n[launch]\nmodule = "trainers.train"\n'
        '[sweep]\nkind = "random"\nsamples = 2\naxes.args.base_lr = { uniform = [0, 1] }\n'
    )
    result = sweeps.load(path, ["sweep.samples=3", "args.epochs=2"], profile=profile)
    assert [point.spec.args["epochs"] for point in result.points] == [2, 2, 2]
    with pytest.raises(errors.SpecError) as caught:
        sweeps.load(path, ["args.base-lr=0.1"], profile=profile)
    assert str(caught.value).splitlines()[0] == (
        "sweep.toml:8: sweep.axes.args.base_lr: is varied by the sweep, but --set sets "
        "args.base-lr: remove one of them"
    )

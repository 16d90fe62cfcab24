"""Weights are exported from files and from folders of torch.distributed.checkpoint."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from torch import nn  # noqa: E402

from trainers.tools import export  # noqa: E402

pytestmark = pytest.mark.trainer

Launch = Callable[..., subprocess.CompletedProcess[str]]

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "--local-addr=127.0.0.1"]  # fmt: skip

# Each rank holds half of each weight; the result is compared with the weights of the whole model.
SHARDED = """
import os, pathlib, sys
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.checkpoint import state_dict
from torch.distributed.fsdp import fully_shard
from tests.trainer import test_export
from trainers import checkpoint

init_process_group("gloo")
model = test_export.network()
if torch.distributed.get_rank() == 0:
    torch.save(model.state_dict(), sys.argv[2])
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model(torch.ones(2, 6)).sum().backward()
# A step that changes nothing, so that the optimizer has a state.
optimizer.param_groups[0]["lr"] = 0.0
optimizer.step()
weights, optimizer_state = state_dict.get_state_dict(model, optimizer)
average = {name: value * 2 for name, value in weights.items() if value.is_floating_point()}
state = {"model": weights, "optimizer": optimizer_state, "ema": average}
store = checkpoint.Store(pathlib.Path(sys.argv[1]), keep=2, sharded=True)
store.save_sharded(state, {"step": 120}, step=120, is_best=True)
assert store.failure is None
destroy_process_group()
# FSDP's caches keep threads of gloo, which may abort the process while Python exits.
os._exit(0)
"""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def _save(path: Path, **further: object) -> dict[str, torch.Tensor]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "settings": {}}
    torch.save({**state, **further}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    return model.state_dict()


def _same(weights: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(weights) == list(expected) and all(
        torch.equal(weights[name], expected[name]) for name in expected
    )


def test_the_weights_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = _save(tmp_path / "best.pt", padding=torch.zeros(100_000))
    output = tmp_path / "weights.pt"
    assert export.main([str(tmp_path / "best.pt"), str(output)]) == 0
    weights = torch.load(output, weights_only=True)
    assert _same(weights, expected)
    network().load_state_dict(weights)
    assert capsys.readouterr().out == f"{output}: 9 tensors, 0.0 MB\n"
    # Without the other values.
    assert output.stat().st_size < 10_000


def test_averaged_weights_replace_those_that_have_an_average(tmp_path: Path) -> None:
    average = {"0.weight": torch.ones(4, 6), "2.bias": torch.zeros(2)}
    expected = _save(tmp_path / "best.pt", ema=average)
    output = tmp_path / "weights.pt"
    assert export.main([str(tmp_path / "best.pt"), str(output), "--ema"]) == 0
    assert _same(torch.load(output, weights_only=True), expected | average)


def test_the_weights_of_a_folder_of_fsdp(
    launch: Launch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, whole, output = (tmp_path / name for name in ("best", "w.pt", "o.pt"))
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    result = launch([*TORCHRUN, str(script), str(tmp_path), str(whole)])
    assert result.returncode == 0, result.stderr
    assert len(list(folder.glob("*.distcp"))) == 2
    result = launch(["-W", "error", "-m", "trainers.tools.export", str(folder), str(output)])
    assert (result.returncode, result.stderr) == (0, "")
    expected = torch.load(whole, weights_only=True)
    weights = torch.load(output, weights_only=True)
    trained = {name for name in expected if "1." not in name}
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in trained)
    network().load_state_dict(weights)
    output.unlink()
    assert export.main([str(folder), str(output), "--ema"]) == 0
    averaged = torch.load(output, weights_only=True)
    assert all(torch.equal(averaged[name], expected[name] * 2) for name in trained)
    part = next(folder.glob("*.distcp"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert export.main([str(folder), str(output)]) == 1
    assert (
        f"{folder} is damaged or incomplete: the checksum of checkpoint-0000000120/{part.name}"
        in (capsys.readouterr().err)
    )


@pytest.mark.parametrize(
    ("prepare", "arguments", "exit_code", "message"),
    [
        (
            lambda path: (path.unlink(), path.with_name("best.pt.sha256").unlink()),
            [],
            1,
            "[Errno 2] No such file or directory: '{}/best.pt'",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"),
            [],
            1,
            "{}/best.pt is damaged or incomplete: the checksum of best.pt differs.",
        ),
        (
            lambda path: None,
            ["--ema"],
            2,
            "{}/best.pt has no averaged weights: omit --ema.",
        ),
        (
            lambda path: torch.save({}, path.with_name("weights.pt")),
            [],
            1,
            "[Errno 17] File exists: '{}/weights.pt'",
        ),
    ],
)
def test_what_cannot_be_exported(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path], object],
    arguments: list[str],
    exit_code: int,
    message: str,
) -> None:
    checkpoint, output = tmp_path / "best.pt", tmp_path / "weights.pt"
    _save(checkpoint)
    prepare(checkpoint)
    assert export.main([str(checkpoint), str(output), *arguments]) == exit_code
    expected = f"trainers.tools.export: error: {message.format(tmp_path)}\n"
    assert capsys.readouterr().err == expected

"""Two short epochs with each combination of preset, precision, compilation, determinism and mode.

    script/test --tier trainer -- tests/trainer/test_smoke.py [-k "fsdp and bf16"]

on a machine with GPUs runs all of them; without a GPU, one of each mode runs. Each trains on
synthetic data, evaluates and writes checkpoints. A failure of torch.compile is a failure, although
the trainer continues without compilation.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import subprocess
from collections.abc import Callable, Iterator, Mapping

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, train  # noqa: E402

# As in a program of its own: PyTorch warns, for example, that fp32 is slower than tf32.
pytestmark = [pytest.mark.trainer, pytest.mark.filterwarnings("default")]

#: Preset -> shape of its samples, number of classes.
PRESETS: Mapping[str, tuple[str, int]] = {
    "cifar100": ("3,32,32", 100),
    "mnist": ("1,28,28", 10),
    "har-quick": ("9,128", 6),
    "digits": ("1,8,8", 10),
    "lesson05": ("20", 10),
}
NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
#: Of ddp and fsdp; the GPUs of dp.
NUM_RANKS = NUM_GPUS or 2
PER_DEVICE_BATCH_SIZE = 8
# Full batches of an epoch; CUDA graphs are recorded in the third step.
FULL_STEPS = 5
PROGRAM = pathlib.Path(__file__).with_name("smoke_ranks.py")


@dataclasses.dataclass(frozen=True)
class Combination:
    """What one run is about: a key of PRESETS, options, and whether it is deterministic."""

    mode: str
    preset: str
    precision: str
    compile: str
    algorithms: str

    @property
    def is_valid(self) -> bool:
        """Return whether the trainer accepts it."""
        if self.mode == "dp":
            return self.compile == "off"
        return self.mode != "fsdp" or self.precision != "fp16"

    @property
    def is_possible(self) -> bool:
        """Return whether this machine has the GPUs for it."""
        has_bf16 = NUM_GPUS > 0 and torch.cuda.is_bf16_supported(including_emulation=False)
        return NUM_GPUS >= (1 if self.mode == "single" else 2) and (
            has_bf16 or self.precision != "bf16"
        )

    def arguments(self, run_dir: pathlib.Path) -> list[str]:
        shape, num_classes = PRESETS[self.preset]
        batch_size = PER_DEVICE_BATCH_SIZE * (1 if self.mode == "single" else NUM_RANKS)
        return [
            f"--preset={self.preset}",
            "--dataset=synthetic",
            f"--synthetic-shape={shape}",
            f"--synthetic-classes={num_classes}",
            # The last batch of an epoch is half full.
            f"--synthetic-samples={FULL_STEPS * batch_size + batch_size // 2}",
            f"--batch-size={batch_size}",
            f"--per-device-batch-size={PER_DEVICE_BATCH_SIZE}",
            "--epochs=2",
            "--warmup-epochs=1",
            f"--precision={self.precision}",
            f"--compile={self.compile}",
            f"--mode={self.mode}",
            f"--run-dir={run_dir}",
            *(["--deterministic"] if self.algorithms == "deterministic" else []),
        ]


MATRIX = [
    combination
    for values in itertools.product(
        ("single", "dp", "ddp", "fsdp"),
        PRESETS,
        ("fp32", "tf32", "bf16", "fp16"),
        ("off", "default", "reduce-overhead"),
        ("fast", "deterministic"),
    )
    if (combination := Combination(*values)).is_valid
]
ON_CPU = [
    Combination("single", "har-quick", "bf16", "off", "deterministic"),
    Combination("ddp", "digits", "fp32", "off", "fast"),
    Combination("fsdp", "lesson05", "bf16", "off", "fast"),
]
RUN = [each for each in MATRIX if each.is_possible] if NUM_GPUS else ON_CPU
SKIPPED = pytest.mark.skip(
    reason=f"{len(MATRIX) - len(RUN)} combinations need more or newer GPUs than {NUM_GPUS} here"
)


@pytest.fixture
def own_switches() -> Iterator[None]:
    """Isolate what a training sets for its process: compiled code and deterministic algorithms."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "combination",
    [
        *(pytest.param(each, id="-".join(dataclasses.astuple(each))) for each in RUN),
        *([pytest.param(None, id="others", marks=SKIPPED)] if len(RUN) < len(MATRIX) else []),
    ],
)
def test_combination(
    combination: Combination,
    launch: Callable[..., subprocess.CompletedProcess[str]],
    own_switches: None,
    tmp_path: pathlib.Path,
) -> None:
    words = combination.arguments(tmp_path)
    if combination.mode in ("ddp", "fsdp"):
        done = launch([str(PROGRAM), str(NUM_RANKS), *words])
        assert done.returncode == 0, done.stderr
    else:
        train.run(arguments.parse_arguments(words), {})
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["ending"], result["steps"]) == ("complete", 2 * (FULL_STEPS + 1))
    # With a note if code could not be compiled.
    assert result["run"]["compile"] == combination.compile

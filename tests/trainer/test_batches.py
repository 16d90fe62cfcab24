"""Division of an epoch into steps, and the learning rate of each step."""

import re

import hypothesis
import pytest
from hypothesis import strategies

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, distributed, errors, optim  # noqa: E402
from trainers.data import batches  # noqa: E402

pytestmark = pytest.mark.trainer


@hypothesis.settings(deadline=None)
@hypothesis.given(
    strategies.integers(1, 300),
    strategies.integers(1, 8),
    strategies.integers(1, 5),
    strategies.integers(1, 6),
)
def test_each_sample_is_in_one_pass_of_one_rank(
    num_samples: int, world_size: int, passes: int, each: int
) -> None:
    plans = [
        batches.Plan(
            num_samples=num_samples,
            global_batch_size=world_size * passes * each,
            gradient_accumulation_steps=passes,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]
    for step in range(plans[0].steps_per_epoch):
        parts = [plan.micro_batches(step) for plan in plans]
        # DDP needs as many passes of each rank, and none empty; no pass is larger than asked for.
        assert len({len(part) for part in parts}) == 1
        assert all(0 < m.positions.stop - m.positions.start <= each for part in parts for m in part)
        for passes_of_ranks in zip(*parts, strict=True):
            sizes = [m.num_samples for m in passes_of_ranks]
            assert max(sizes) - min(sizes) <= 1
        positions = sorted(
            position
            for part in parts
            for m in part
            if m.num_samples
            for position in range(m.positions.start, m.positions.stop)
        )
        first = step * plans[0].global_batch_size
        assert positions == list(range(first, first + plans[0].batch_size(step)))
        assert sum(m.num_samples for part in parts for m in part) == plans[0].batch_size(step)
    assert sum(map(plans[0].batch_size, range(plans[0].steps_per_epoch))) == num_samples


@pytest.mark.parametrize(
    ("words", "num_devices", "expected"),
    [
        ("", 2, (64, 1)),
        ("--batch-size=128 --gradient-accumulation-steps=4", 8, (128, 4)),
        ("--per-device-batch-size=16", 8, (128, 1)),
        ("--per-device-batch-size=16 --gradient-accumulation-steps=4", 2, (128, 4)),
        # The same global batch on fewer ranks: more passes.
        ("--batch-size=128 --per-device-batch-size=16", 8, (128, 1)),
        ("--batch-size=128 --per-device-batch-size=16", 2, (128, 4)),
    ],
)
def test_batch_size(words: str, num_devices: int, expected: tuple[int, int]) -> None:
    args = arguments.parse_arguments(words.split())
    assert batches.batch_size(args, num_devices) == expected


def make_lengths(steps_per_epoch: int, batch_size: int = 64) -> batches.Plan:
    return batches.Plan(
        num_samples=steps_per_epoch * batch_size,
        global_batch_size=batch_size,
        gradient_accumulation_steps=1,
        rank=0,
        world_size=1,
    )


def make_schedule(name: str, *words: str, steps_per_epoch: int) -> optim.Schedule:
    """Return the schedule of two epochs from 1.0 to 0.1."""
    options = ["--base-lr=1", "--min-lr=0.1", "--epochs=2", "--lr-gamma=0.5", "--lr-step-epochs=1"]
    args = arguments.parse_arguments([f"--schedule={name}", *options, *words])
    return optim.Schedule(args, make_lengths(steps_per_epoch))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.25, 0.5, 0.75, 1, .91, .82, .73, .64, .55, .46, .37, .28, .19, .1]),
        ("step", [0.25, 0.5, 0.75, 1, 1, 1, 1, .5, .5, .5, .5, .5, .5, .5, .25]),
    ],
)  # fmt: skip
def test_schedule(name: str, expected: list[float]) -> None:
    schedule = make_schedule(name, f"--warmup-epochs={4 / 7}", steps_per_epoch=7)
    assert [schedule.learning_rate(step) for step in range(len(expected))] == pytest.approx(
        expected
    )


def test_cosine_equals_that_of_pytorch() -> None:
    schedule = make_schedule("cosine", steps_per_epoch=6)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=11, eta_min=0.1)
    for step in range(12):
        rate = schedule.learning_rate(step)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6), step
        optimizer.step()
        reference.step()


def test_scaling_is_by_the_effective_batch() -> None:
    def peak(*words: str) -> float:
        args = arguments.parse_arguments(["--base-lr=0.1", *words])
        return optim.Schedule(args, make_lengths(10, batch_size=512)).peak

    rates = [
        peak(f"--lr-scaling={rule}", "--lr-base-batch-size=128")
        for rule in ("none", "linear", "sqrt")
    ]
    assert rates == pytest.approx([0.1, 0.4, 0.2])
    with pytest.raises(errors.UsageError, match=r"^--lr-scaling requires --lr-base-batch-size\.$"):
        peak("--lr-scaling=sqrt")


def test_length_of_the_warm_up() -> None:
    args = arguments.parse_arguments(["--warmup-epochs=0.5"])
    assert optim.Schedule(args, make_lengths(10)).warmup_steps == 5


def make_plan(*words: str, num_samples: int | None = 50) -> batches.Plan:
    args = arguments.parse_arguments(["--batch-size=12", *words])
    return batches.make_plan(args, num_samples, distributed.DistInfo(), 1)


def test_the_incomplete_last_batch_can_be_left_out() -> None:
    plan = make_plan()
    assert (plan.steps_per_epoch, plan.batch_size(3), plan.batch_size(4)) == (5, 12, 2)
    plan = make_plan("--drop-last")
    assert (plan.steps_per_epoch, plan.batch_size(3)) == (4, 12)


def test_steps_per_epoch_shorten_an_epoch() -> None:
    plan = make_plan("--steps-per-epoch=3")
    assert (plan.steps_per_epoch, plan.num_samples) == (3, 36)
    assert make_plan("--steps-per-epoch=3", num_samples=None).num_samples == 36


@pytest.mark.parametrize(
    ("words", "num_samples", "message"),
    [
        (
            ["--steps-per-epoch=5"],
            50,
            "The training set (50 samples) is smaller than 5 batch(es) of 12 samples: use a smaller"
            " batch, fewer --steps-per-epoch or fewer ranks.",
        ),
        (
            [],
            None,
            "The training data is a stream of unknown length: set --steps-per-epoch, or give the"
            " data set an attribute num_samples.",
        ),
        (
            [],
            11,
            "The training set (11 samples) is smaller than 1 batch(es) of 12 samples: use a smaller"
            " batch, fewer --steps-per-epoch or fewer ranks.",
        ),
    ],
)
def test_unsuitable_lengths(words: list[str], num_samples: int | None, message: str) -> None:
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        make_plan(*words, num_samples=num_samples)

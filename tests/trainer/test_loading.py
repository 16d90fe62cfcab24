"""Map-style data sets and streams: the same samples for any number of ranks and workers."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
import numpy  # noqa: E402
from torch.utils import data as torch_data  # noqa: E402

from tests.trainer import workers  # noqa: E402
from trainers import arguments, distributed, errors  # noqa: E402
from trainers.data import batches, loading  # noqa: E402

pytestmark = pytest.mark.trainer

# Steps of 12, 12, 12, 12 and 2 samples; with three ranks and two passes the last step leaves ranks
# without a sample.
NUM_SAMPLES, BATCH_SIZE, SEED = 50, 12, 7
#: Ranks, and workers of each.
SIZES = [(1, 0), (1, 2), (2, 2), (3, 0)]


class Numbers(torch_data.Dataset[tuple[int, float]]):
    """Sample i is i, and a random number as a random transform draws it."""

    def __init__(self, num_samples: int = NUM_SAMPLES) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random() + numpy.random.random() + torch.rand(()).item()


class Stream(torch_data.IterableDataset[tuple[int, float]]):
    """The same as a stream, which starts at another number in each epoch."""

    def __init__(self, num_samples: int | None = NUM_SAMPLES, length: int | None = None) -> None:
        self.length = NUM_SAMPLES if length is None else length
        self.epoch = 0
        if num_samples is not None:
            self.num_samples = num_samples

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for position in range(self.length):
            yield 1000 * self.epoch + position, torch.rand(()).item()


class Seekable(Stream):
    """A stream that skips samples without reading them."""

    def samples_at(self, positions: Iterator[int]) -> Iterator[tuple[int, float]]:
        for position in positions:
            yield 1000 * self.epoch + position, 0.5

    def __iter__(self) -> Iterator[tuple[int, float]]:
        raise AssertionError("read from its beginning")


def make_source(
    train: Any,
    evaluation: Any = None,
    *words: str,
    rank: int = 0,
    world_size: int = 1,
    num_workers: int = 0,
) -> tuple[loading.Source, batches.Plan]:
    args = arguments.parse_arguments(
        [
            f"--batch-size={BATCH_SIZE}",
            "--gradient-accumulation-steps=2",
            f"--num-workers={num_workers}",
            f"--seed={SEED}",
            *words,
        ]
    )
    dist = distributed.DistInfo(rank=rank, world_size=world_size)
    plan = batches.make_plan(args, batches.num_samples_of(train), dist, world_size)
    evaluation = Numbers(1) if evaluation is None else evaluation
    device, memory_format = torch.device("cpu"), torch.contiguous_format
    return loading.Source(args, train, evaluation, plan, device, memory_format), plan


def steps(
    train: Any, *words: str, epoch: int = 1, first_step: int = 0, **sizes: int
) -> list[list[tuple[int, float]]]:
    """Return the samples of each step on a rank; placeholders do not count."""
    source, plan = make_source(train, None, *words, **sizes)
    source.begin_epoch(epoch, first_step)
    result = []
    for step in range(first_step, plan.steps_per_epoch):
        samples = []
        for micro, (numbers, values) in source.micro_batches(step):
            assert len(numbers) == max(1, micro.num_samples)
            if micro.num_samples:
                samples += list(zip(numbers.tolist(), values.tolist(), strict=True))
        result.append(samples)
    workers.end()
    return result


def on_ranks(train: Any, world_size: int, **options: Any) -> list[list[tuple[int, float]]]:
    """Return the samples of each step over all ranks, sorted."""
    ranks = [
        steps(train, rank=rank, world_size=world_size, **options) for rank in range(world_size)
    ]
    return [sorted(itertools.chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)]


@pytest.mark.parametrize(("world_size", "num_workers"), SIZES)
def test_map_style_data(world_size: int, num_workers: int) -> None:
    found = on_ranks(Numbers(), world_size, num_workers=num_workers)
    permutation = batches.permutation(SEED, 1, NUM_SAMPLES).tolist()
    expected = [
        sorted(permutation[first : first + BATCH_SIZE])
        for first in range(0, NUM_SAMPLES, BATCH_SIZE)
    ]
    assert [[number for number, _ in step] for step in found] == expected
    # Random transforms depend on the sample, not on who reads it.
    assert found == on_ranks(Numbers(), 1)


@pytest.mark.parametrize(("world_size", "num_workers"), SIZES)
@pytest.mark.parametrize("kind", [Stream, Seekable])
def test_streams(kind: type[Stream], world_size: int, num_workers: int) -> None:
    found = on_ranks(kind(), world_size, num_workers=num_workers, epoch=3)
    numbers = range(3000, 3000 + NUM_SAMPLES)
    assert [[number for number, _ in step] for step in found] == [
        [*numbers[first : first + BATCH_SIZE]] for first in range(0, NUM_SAMPLES, BATCH_SIZE)
    ]


@pytest.mark.parametrize("kind", [Numbers, Stream, Seekable])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_resume_within_an_epoch(kind: Any, num_workers: int) -> None:
    whole = on_ranks(kind(), 1, num_workers=num_workers, epoch=2)
    rest = on_ranks(kind(), 1, num_workers=num_workers, epoch=2, first_step=3)
    numbers = [[[number for number, _ in step] for step in parts] for parts in (whole, rest)]
    assert numbers[0][3:] == numbers[1]
    if kind is Numbers:
        assert whole[3:] == rest


def test_samples_differ_between_epochs_and_seeds() -> None:
    first = steps(Numbers())
    assert first == steps(Numbers())
    numbers = {number: value for step in first for number, value in step}
    later = {number: value for step in steps(Numbers(), epoch=2) for number, value in step}
    assert numbers.keys() == later.keys() == set(range(NUM_SAMPLES))
    assert not set(numbers.values()) & set(later.values())
    assert first != steps(Numbers(), "--seed=8")


def test_short_epochs_use_all_data() -> None:
    epochs = [
        [
            number
            for step in steps(Numbers(), "--steps-per-epoch=2", epoch=epoch)
            for number, _ in step
        ]
        for epoch in range(1, 13)
    ]
    assert {len(set(numbers)) for numbers in epochs} == {2 * BATCH_SIZE}
    assert set().union(*epochs) == set(range(NUM_SAMPLES))


@pytest.mark.parametrize("train", [Numbers(), Stream()])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_random_transforms_leave_the_random_state_of_the_trainer(
    train: Any, num_workers: int
) -> None:
    def states() -> tuple[Any, ...]:
        return random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()

    source, plan = make_source(train, Numbers(3), num_workers=num_workers)
    before = states()
    source.begin_epoch(1, 0)
    for step in range(plan.steps_per_epoch):
        for _ in source.micro_batches(step):
            assert states() == before
    assert len(list(source.eval_batches())) == 1
    assert states() == before


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("num_samples", "words"), [(50, []), (None, ["--steps-per-epoch=4"])])
def test_stream_that_ends_too_early(
    num_samples: int | None, words: list[str], num_workers: int
) -> None:
    # From a worker too without the traceback in front.
    message = (
        "The stream of training data ended after 40 samples: correct its num_samples, or set a"
        " smaller --steps-per-epoch."
    )
    with pytest.raises(errors.DataError, match=f"^{re.escape(message)}$"):
        steps(Stream(num_samples=num_samples, length=40), *words, num_workers=num_workers)


def test_stream_of_evaluation_data_may_end_early() -> None:
    source, _ = make_source(Numbers(), Stream(num_samples=30, length=20), num_workers=2)
    numbers = [number for batch in source.eval_batches() for number in batch[0].tolist()]
    assert numbers == [*range(20)]


class Divided(Stream):
    """A stream that divides its samples among the workers, although it must not."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        worker = torch_data.get_worker_info()
        first, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return itertools.islice(super().__iter__(), first, None, count)


def test_stream_that_divides_itself_among_workers_loses_no_sample() -> None:
    evaluation = Divided(num_samples=None, length=25)
    source, _ = make_source(Numbers(), evaluation, num_workers=2)
    labels = [number for batch in source.eval_batches() for number in batch[0].tolist()]
    assert labels == [*range(25)]


def test_stream_without_a_length_has_steps_per_epoch() -> None:
    endless = Stream(num_samples=None, length=10**9)
    found = steps(endless, "--steps-per-epoch=3", num_workers=2)
    assert [number for step in found for number, _ in step] == [*range(1000, 1036)]


@pytest.mark.parametrize(
    ("size", "num_workers"), [(1, 0), (2, 0), (7, 0), (24, 0), (25, 0), (25, 2)]
)
@pytest.mark.parametrize(
    "kind", [Numbers, Stream, lambda size: Stream(num_samples=None, length=size)]
)
def test_evaluation_reads_each_sample_once(kind: Any, size: int, num_workers: int) -> None:
    evaluation = kind(size) if kind is not Stream else Stream(num_samples=size, length=size)
    found: list[int] = []
    for rank in range(3):
        source, _ = make_source(
            Numbers(),
            evaluation,
            "--eval-batch-size=4",
            rank=rank,
            world_size=3,
            num_workers=num_workers,
        )
        for numbers, _ in source.eval_batches():
            assert 0 < len(numbers) <= 4
            found += numbers.tolist()
    assert sorted(found) == [*range(size)]


class Sentences(torch_data.Dataset[Any]):
    """Samples of different lengths, which the data set pads itself."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": torch.arange(1 + index % 3), "name": str(index)}

    def collate_fn(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        tokens = [sample["tokens"] for sample in samples]
        padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-1)
        return {"tokens": padded, "names": [sample["name"] for sample in samples]}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_set_may_collate_its_samples(num_workers: int) -> None:
    source, _ = make_source(Sentences(), num_workers=num_workers)
    source.begin_epoch(1, 0)
    (_, batch), _ = source.micro_batches(0)
    names = [str(number) for number in batches.permutation(SEED, 1, NUM_SAMPLES)[:6].tolist()]
    assert batch["names"] == names
    assert batch["tokens"].shape == (6, 3)
    assert (batch["tokens"] < 0).any()


class Nested(Sentences):
    """Samples that the default collate_fn of PyTorch can stack."""

    collate_fn = staticmethod(torch_data.default_collate)

    def __getitem__(self, index: int) -> Any:
        image = torch.full((3, 2, 2), float(index))
        return {"image": image, "pair": (index, [index, index])}


def test_nested_batches_keep_their_structure() -> None:
    source, _ = make_source(Nested(), Nested())
    source.begin_epoch(1, 0)
    (_, batch), _ = source.micro_batches(0)
    first, (second, third) = batch["pair"]
    assert torch.equal(first, second) and torch.equal(first, third)
    assert torch.equal(batch["image"][:, 0, 0, 0], first.float())
    devices = loading.map_tensors(batch, lambda tensor: tensor.to("meta").device.type)
    assert devices == {"image": "meta", "pair": ["meta", ["meta", "meta"]]}

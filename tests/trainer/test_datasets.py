"""Who sees which image when."""

import hypothesis
import pytest
from hypothesis import strategies

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import datasets  # noqa: E402

pytestmark = pytest.mark.trainer


def test_digits_split_loses_nothing() -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    data = datasets.load_digits()
    assert data.train_images.shape == (1438, 1, 8, 8)
    assert data.test_images.shape == (359, 1, 8, 8)
    assert data.train_images.dtype == torch.uint8
    labels = torch.cat([data.train_labels, data.test_labels])
    # The class sizes that scikit-learn documents for the whole set.
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    normalised = data.normalise(data.train_images)
    assert abs(normalised.mean().item()) < 1e-5
    assert abs(normalised.std().item() - 1) < 1e-5


def test_permutation_depends_on_seed_and_epoch_only() -> None:
    # Recorded: a change would break the comparison with every earlier run.
    assert datasets.permutation(0, 1, 8).tolist() == [7, 3, 6, 4, 5, 0, 2, 1]
    assert datasets.permutation(0, 2, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]
    assert datasets.permutation(1, 1, 8).tolist() != [7, 3, 6, 4, 5, 0, 2, 1]


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.integers(0, 5000), strategies.integers(1, 64))
def test_slices_of_ranks_cover_a_batch_once(size: int, world_size: int) -> None:
    batch = list(range(size))
    parts = [batch[datasets.rank_slice(size, rank, world_size)] for rank in range(world_size)]
    assert [image for part in parts for image in part] == batch
    lengths = {len(part) for part in parts}
    assert max(lengths) - min(lengths) <= 1

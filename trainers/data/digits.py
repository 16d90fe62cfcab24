"""scikit-learn's scanned digits."""

import torch

from trainers import errors
from trainers.datasets import options, order, records

# The test split does not depend on --seed, so that runs can be compared.
SPLIT_SEED = 0
TEST_SHARE = 0.2


def load_digits(wanted: options.Options = options.Options()) -> records.Dataset:  # noqa: B008
    """Load scikit-learn's 1,797 scanned digits, 8 x 8 pixels of 0 to 16; needs no download."""
    try:
        from sklearn import datasets as sklearn_datasets
    except ImportError as error:
        raise errors.UsageError(
            f"--dataset digits requires scikit-learn, which cannot be imported ({error}):"
            " install it in PyTorch's environment."
        ) from error
    digits = sklearn_datasets.load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    shuffled = order.permutation(SPLIT_SEED, 0, len(images))
    num_test = round(len(images) * TEST_SHARE)
    test, train = shuffled[:num_test], shuffled[num_test:]
    return records.make(
        "digits",
        train=(images[train], labels[train]),
        test=(images[test], labels[test]),
        num_classes=10,
        class_names=tuple("0123456789"),
    )

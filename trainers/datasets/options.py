"""What a run says about its data."""

import dataclasses
import pathlib

from trainers import bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Where data is, and what synthetic data looks like."""

    #: Folder of all data sets, in torchvision's layout.
    folder: pathlib.Path = pathlib.Path("datasets")
    #: Whether missing files are fetched.
    download: bool = False
    #: Whether training images are augmented where the data set has a way to.
    augment: bool = True
    #: Shape of one synthetic sample.
    synthetic_shape: tuple[int, ...] = (3, 32, 32)
    #: Number of synthetic classes.
    synthetic_classes: int = 10
    #: Number of synthetic samples for training; a fifth of it more are for testing.
    synthetic_samples: int = 10_000


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse `3,32,32`."""
    return tuple(bounds.positive(part) for part in text.split(","))

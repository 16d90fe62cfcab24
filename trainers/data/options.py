"""Options for data."""

import dataclasses
import pathlib

from trainers import bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Folder of the data sets, and shape of synthetic data."""

    #: Folder of all data sets, in torchvision's layout.
    folder: pathlib.Path = pathlib.Path("datasets")
    #: Whether missing files are downloaded.
    download: bool = False
    #: Whether training images are augmented, if the data set has an augmentation.
    augment: bool = True
    #: Shape of one synthetic sample.
    synthetic_shape: tuple[int, ...] = (3, 32, 32)
    #: Number of synthetic classes.
    synthetic_classes: int = 10
    #: Number of synthetic training samples; a fifth of that number are added for testing.
    synthetic_samples: int = 10_000


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse `3,32,32`."""
    return tuple(bounds.positive(part) for part in text.split(","))

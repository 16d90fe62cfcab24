"""Samples made from random numbers: any shape, no files, and yet something to learn."""

import torch

from trainers.datasets import options, records

# The data is part of what is compared between runs, and does not follow from the run's own seed.
DATA_SEED = 0
# Standard deviation of the noise around a class's middle: some classes overlap in few dimensions.
NOISE = 1.0
CHUNK = 1000


def load_synthetic(wanted: options.Options) -> records.Dataset:
    """Make noisy copies of one random pattern a class; shape (C, H, W) gives uint8 images."""
    generator = torch.Generator().manual_seed(DATA_SEED)
    shape, num_classes = wanted.synthetic_shape, wanted.synthetic_classes
    patterns = torch.randn(num_classes, *shape, generator=generator)

    def draw(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(num_classes, (size,), generator=generator)
        parts = []
        for chosen in labels.split(CHUNK):
            noise = torch.randn(len(chosen), *shape, generator=generator)
            samples = patterns[chosen] + NOISE * noise
            if len(shape) == 3:
                samples = (128 + 32 * samples).clamp(0, 255).to(torch.uint8)
            parts.append(samples)
        return torch.cat(parts), labels

    return records.make(
        "synthetic",
        train=draw(wanted.synthetic_samples),
        test=draw(max(wanted.synthetic_samples // 5, 1)),
        num_classes=num_classes,
        augmentation="crop-flip" if len(shape) == 3 else "none",
    )

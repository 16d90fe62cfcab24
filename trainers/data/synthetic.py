"""Synthetic samples of any shape that a model can learn to classify."""

import torch

from trainers.datasets import options, records

# The data does not depend on --seed, so that runs can be compared.
DATA_SEED = 0
# Standard deviation of the noise around the pattern of a class; in few dimensions classes overlap.
NOISE = 1.0
CHUNK = 1000


def load_synthetic(wanted: options.Options) -> records.Dataset:
    """Return noisy copies of one random pattern per class; shape (C, H, W) gives uint8 images."""
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

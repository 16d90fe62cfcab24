"""Networks of a few layers, for images and for signals of several channels."""

import torch
from torch import nn
from torch.nn import functional

from trainers import errors

# The HAR guide's classifier averages each feature over so many parts of the time axis.
NUM_AVERAGES = 4


def check_shape(
    model: str, shape: torch.Size, num_dimensions: int, smallest: int = 1
) -> torch.Size:
    """Return the shape, [C, H, W] or [C, L]; raise UsageError if the model does not accept it."""
    if len(shape) != num_dimensions or min(shape[1:]) < smallest:
        kind = f"images of at least {smallest} x {smallest} pixels"
        if num_dimensions == 2:
            kind = "signals of several channels"
        raise errors.UsageError(
            f"--model {model} requires {kind}, and a sample is {' x '.join(map(str, shape))}: use"
            " another model or data set."
        )
    return shape


def cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Two convolutions and two linear layers, for digits and MNIST.

    Without batch norm, so that gradients do not depend on the world size.
    """
    num_channels, height, width = check_shape("cnn", sample_shape, 3, smallest=2)
    return nn.Sequential(
        nn.Conv2d(num_channels, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 2) * (width // 2), 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def mlp(sample_shape: torch.Size, num_classes: int, *, width: int) -> nn.Module:
    """One hidden layer."""
    hidden = nn.Linear(sample_shape.numel(), width)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(width, num_classes))


def sca_cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """The model of the SCA tutorial for MNIST, which is that of PyTorch's MNIST example.

    There it ends in log_softmax, and the loss is the negative log-likelihood, which equals the
    cross entropy of the logits.
    """
    num_channels, height, width = check_shape("sca-cnn", sample_shape, 3, smallest=6)
    return nn.Sequential(
        nn.Conv2d(num_channels, 32, kernel_size=3),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_classes),
    )


def cnn1d(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Three convolutions over time on all channels, then the mean over time."""
    num_in, _ = check_shape("cnn1d", sample_shape, 2)
    layers: list[nn.Module] = []
    for num_out, width, stride in ((64, 7, 2), (128, 5, 2), (128, 3, 1)):
        layers += [
            nn.Conv1d(num_in, num_out, width, stride=stride, padding=width // 2, bias=False),
            nn.BatchNorm1d(num_out),
            nn.ReLU(),
        ]
        num_in = num_out
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(num_in, num_classes)]
    return nn.Sequential(*layers, *head)


class ChannelClassifier(nn.Module):
    """The classifier of the HAR guide: one encoder for each channel separately, and a head.

    `mode` determines how channels are combined: `flatten` concatenates the features of all
    channels, `average` takes their mean, `first` uses only the first channel. The guide's
    pretrained image encoder was never published; this encoder is small and trained with the rest.
    """

    def __init__(self, sample_shape: torch.Size, num_classes: int, *, mode: str) -> None:
        super().__init__()
        num_channels, _ = check_shape(f"har-{mode}", sample_shape, 2)
        self.mode = mode
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 32, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        num_features = 64 * NUM_AVERAGES * (num_channels if mode == "flatten" else 1)
        self.head = nn.Sequential(
            nn.Linear(num_features, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, num_classes)
        )

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """Return logits [B, num_classes] of signals [B, C, L]."""
        if self.mode == "first":
            signals = signals[:, :1]
        batch, num_channels, length = signals.shape
        features = average(self.encoder(signals.reshape(batch * num_channels, 1, length)))
        features = features.reshape(batch, num_channels, -1)
        return self.head(features.mean(dim=1) if self.mode == "average" else features.flatten(1))


def average(features: torch.Tensor) -> torch.Tensor:
    """Return the means [N, F, 4] of four parts of the time axis of features [N, F, L]."""
    if features.shape[-1] % NUM_AVERAGES:
        # Its backward pass on GPUs is not deterministic, but it allows overlapping parts.
        return functional.adaptive_avg_pool1d(features, NUM_AVERAGES)
    return features.unflatten(-1, (NUM_AVERAGES, -1)).mean(dim=-1)

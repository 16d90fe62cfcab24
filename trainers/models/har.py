"""Networks for signals of several channels, such as the motion of a smartphone."""

import torch
from torch import nn

from trainers.models import shapes

# The head of the HAR guide.
HIDDEN = 512
DROPOUT = 0.1


def cnn1d(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Three convolutions over time on all channels, then the mean over time."""
    num_channels, _ = shapes.signal("cnn1d", sample_shape)
    layers: list[nn.Module] = []
    num_in = num_channels
    for num_out, width, stride in ((64, 7, 2), (128, 5, 2), (128, 3, 1)):
        layers += [
            nn.Conv1d(num_in, num_out, width, stride=stride, padding=width // 2, bias=False),
            nn.BatchNorm1d(num_out),
            nn.ReLU(),
        ]
        num_in = num_out
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(num_in, num_classes),
    )


class ChannelClassifier(nn.Module):
    """One encoder that is applied to each channel separately, and a head on its features."""

    def __init__(self, num_channels: int, num_classes: int, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 32, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        num_features = 4 * 64 * (num_channels if mode == "flatten" else 1)
        self.head = nn.Sequential(
            nn.Linear(num_features, HIDDEN),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, num_classes),
        )

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """Return logits [B, num_classes] of signals [B, C, L]."""
        if self.mode == "first":
            return self.head(self.encoder(signals[:, :1]))
        batch, num_channels, length = signals.shape
        features = self.encoder(signals.reshape(batch * num_channels, 1, length))
        features = features.reshape(batch, num_channels, -1)
        together = features.flatten(1) if self.mode == "flatten" else features.mean(dim=1)
        return self.head(together)


def har_classifier(sample_shape: torch.Size, num_classes: int, *, mode: str) -> nn.Module:
    """The classifier of the HAR guide; `mode` determines how channels are combined.

    `flatten` concatenates the features of all channels, `average` takes their mean, `first` uses
    only the first channel. The guide's pretrained image encoder was never published; this encoder
    is small and trained with the rest.
    """
    num_channels, _ = shapes.signal(f"har-{mode}", sample_shape)
    return ChannelClassifier(num_channels, num_classes, mode)

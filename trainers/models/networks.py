"""Small networks for images and signals, and wide residual networks."""

import math

import torch
from torch import nn
from torch.nn import functional


def cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Two convolutions and two linear layers, without batch norm, for digits and MNIST."""
    num_channels, height, width = sample_shape
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
    hidden = nn.Linear(sample_shape.numel(), width)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(width, num_classes))


def sca_cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """The model of the SCA tutorial, that of PyTorch's MNIST example, without its log_softmax."""
    num_channels, height, width = sample_shape
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
    num_in, _ = sample_shape
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

    `mode`: `flatten` concatenates the features of all channels, `average` takes their mean, `first`
    uses only the first channel. The encoder is small; the guide's was never published.
    """

    def __init__(self, sample_shape: torch.Size, num_classes: int, *, mode: str) -> None:
        super().__init__()
        num_channels, length = sample_shape
        self.mode = mode
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 32, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.ReLU(),
            # Unlike AdaptiveAvgPool1d, its backward pass is deterministic on GPUs.
            nn.AvgPool1d(math.ceil(length / 4) // 4),
            nn.Flatten(),
        )
        num_features = 64 * 4 * (num_channels if mode == "flatten" else 1)
        self.head = nn.Sequential(
            nn.Linear(num_features, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, num_classes)
        )

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """Return logits [B, num_classes] of signals [B, C, L]."""
        if self.mode == "first":
            signals = signals[:, :1]
        features = self.encoder(signals.flatten(0, 1).unsqueeze(1))
        features = features.unflatten(0, signals.shape[:2])
        return self.head(features.mean(dim=1) if self.mode == "average" else features.flatten(1))


class PreActivationBlock(nn.Module):
    """Twice batch norm, ReLU and convolution, with a shortcut."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(num_in)
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.shortcut = None
        if stride != 1 or num_in != num_out:
            self.shortcut = nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return [B, num_out, H / stride, W / stride]."""
        active = functional.relu(self.norm1(samples))
        # If the shape changes, the shortcut starts after the activation too.
        kept = samples if self.shortcut is None else self.shortcut(active)
        return kept + self.conv2(functional.relu(self.norm2(self.conv1(active))))


def wide_resnet(sample_shape: torch.Size, num_classes: int, *, depth: int, width: int) -> nn.Module:
    """WRN-depth-width of Zagoruyko and Komodakis, for small images; depth is 6 n + 4."""
    num_channels, _, _ = sample_shape
    num_blocks = (depth - 4) // 6
    layers: list[nn.Module] = [nn.Conv2d(num_channels, 16, 3, padding=1, bias=False)]
    num_in = 16
    for num_out, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        for number in range(num_blocks):
            layers.append(PreActivationBlock(num_in, num_out, stride if number == 0 else 1))
            num_in = num_out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_in, num_classes)]
    model = nn.Sequential(*layers, nn.BatchNorm2d(num_in), nn.ReLU(), *head)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class OliviaBlock(nn.Module):
    """Twice convolution, batch norm and ReLU; the shortcut is added after the last ReLU."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolution_norm_relu(num_in, num_out),
            nn.Dropout(0.01),
            *_convolution_norm_relu(num_out, num_out),
        )
        self.shortcut = nn.Conv2d(num_in, num_out, 1) if num_in != num_out else nn.Identity()

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return [B, num_out, H, W]."""
        return self.layers(samples) + self.shortcut(samples)


def olivia_wrn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """The WideResNet of the Olivia guide, with its peculiarities, for comparison.

    Like WRN-16-10, but with post-activation, nothing after the addition, shortcuts with bias and
    without batch norm, dropout of 1 %, and a 7 x 7 pool that ignores the last row and column of the
    8 x 8 features of a 32 x 32 image. It accepts images of 28 to 55 pixels per side.
    """
    num_channels, _, _ = sample_shape
    layers = _convolution_norm_relu(num_channels, 16)
    for num_in, num_out in ((16, 160), (160, 320), (320, 640)):
        layers += [OliviaBlock(num_in, num_out), OliviaBlock(num_out, num_out), nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.AvgPool2d(7), nn.Flatten(), nn.Linear(640, num_classes))


def _convolution_norm_relu(num_in: int, num_out: int) -> list[nn.Module]:
    convolution = nn.Conv2d(num_in, num_out, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(num_out), nn.ReLU()]

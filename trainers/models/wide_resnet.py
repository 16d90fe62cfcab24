"""Wide residual networks: the standard family, and that of the Olivia guide as published."""

import torch
from torch import nn
from torch.nn import functional

from trainers import errors
from trainers.models import small


class PreActivationBlock(nn.Module):
    """Twice batch norm, ReLU and convolution, with a shortcut."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(num_in)
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_out)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False)
            if stride != 1 or num_in != num_out
            else None
        )

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return [B, num_out, H / stride, W / stride]."""
        active = functional.relu(self.norm1(samples))
        # If the shape changes, the shortcut starts after the activation too.
        kept = samples if self.shortcut is None else self.shortcut(active)
        return kept + self.conv2(functional.relu(self.norm2(self.conv1(active))))


def wide_resnet(
    sample_shape: torch.Size, num_classes: int, *, depth: int, widen_factor: int
) -> nn.Module:
    """WRN-depth-widen_factor of Zagoruyko and Komodakis, for small images; depth is 6 n + 4."""
    num_channels, _, _ = small.check_shape(
        f"wrn-{depth}-{widen_factor}", sample_shape, 3, smallest=4
    )
    num_blocks, rest = divmod(depth - 4, 6)
    assert rest == 0, "the depth of a wide residual network is 6 n + 4"
    layers: list[nn.Module] = [nn.Conv2d(num_channels, 16, 3, padding=1, bias=False)]
    num_in = 16
    for num_out, stride in ((16 * widen_factor, 1), (32 * widen_factor, 2), (64 * widen_factor, 2)):
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
    8 x 8 features of a 32 x 32 image.
    """
    num_channels, height, width = small.check_shape("olivia-wrn", sample_shape, 3, smallest=28)
    if max(height, width) >= 56:
        raise errors.UsageError(
            "--model olivia-wrn requires images of 28 to 55 pixels per side: use another model."
        )
    layers = _convolution_norm_relu(num_channels, 16)
    for num_in, num_out in ((16, 160), (160, 320), (320, 640)):
        layers += [OliviaBlock(num_in, num_out), OliviaBlock(num_out, num_out), nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.AvgPool2d(7), nn.Flatten(), nn.Linear(640, num_classes))


def _convolution_norm_relu(num_in: int, num_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(),
    ]

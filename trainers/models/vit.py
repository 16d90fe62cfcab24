"""A small vision transformer."""

import torch
from torch import nn

from trainers import errors
from trainers.models import shapes

PATCH = 4
WIDTH = 192
NUM_LAYERS = 6
NUM_HEADS = 3
HIDDEN = 4 * WIDTH


class VisionTransformer(nn.Module):
    """Patches of an image as tokens, a class token, and pre-norm layers."""

    def __init__(self, sample_shape: torch.Size, num_classes: int) -> None:
        super().__init__()
        num_channels, height, width = shapes.image("vit", sample_shape, smallest=PATCH)
        if height % PATCH or width % PATCH:
            raise errors.UsageError(
                f"--model vit requires image sizes that are multiples of {PATCH}, and the images"
                f" are {height} x {width}: use another model."
            )
        num_words = (height // PATCH) * (width // PATCH) + 1
        self.patches = nn.Conv2d(num_channels, WIDTH, PATCH, stride=PATCH)
        self.class_word = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.empty(1, num_words, WIDTH).normal_(std=0.02))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            NUM_HEADS,
            HIDDEN,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
            layer_norm_eps=1e-6,
        )
        # The fast path for padded tokens does not support pre-norm layers and would warn.
        self.layers = nn.TransformerEncoder(
            layer, NUM_LAYERS, norm=nn.LayerNorm(WIDTH, eps=1e-6), enable_nested_tensor=False
        )
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [B, num_classes] of images [B, C, H, W]."""
        words = self.patches(images).flatten(2).transpose(1, 2)
        class_words = self.class_word.expand(len(words), -1, -1)
        words = torch.cat([class_words, words], dim=1) + self.places
        return self.head(self.layers(words)[:, 0])


def vit(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """ViT-Tiny's width with six layers and patches of 4 x 4 pixels."""
    return VisionTransformer(sample_shape, num_classes)

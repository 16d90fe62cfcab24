"""A small vision transformer."""

import torch
from torch import nn

from trainers import errors
from trainers.models import small

PATCH = 4
WIDTH = 192


class VisionTransformer(nn.Module):
    """ViT-Tiny's width with six pre-norm layers, patches of 4 x 4 pixels, and a class token."""

    def __init__(self, sample_shape: torch.Size, num_classes: int) -> None:
        super().__init__()
        num_channels, height, width = small.check_shape("vit", sample_shape, 3, smallest=PATCH)
        if height % PATCH or width % PATCH:
            raise errors.UsageError(
                f"--model vit requires image sizes that are multiples of {PATCH}, and the images"
                f" are {height} x {width}: use another model."
            )
        num_tokens = (height // PATCH) * (width // PATCH) + 1
        self.patches = nn.Conv2d(num_channels, WIDTH, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position_embedding = nn.Parameter(torch.empty(1, num_tokens, WIDTH).normal_(std=0.02))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            nhead=3,
            dim_feedforward=4 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
            layer_norm_eps=1e-6,
        )
        # The fast path for padded tokens does not support pre-norm layers and would warn.
        self.layers = nn.TransformerEncoder(
            layer, num_layers=6, norm=nn.LayerNorm(WIDTH, eps=1e-6), enable_nested_tensor=False
        )
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [B, num_classes] of images [B, C, H, W]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(len(patches), -1, -1)
        tokens = torch.cat([class_token, patches], dim=1) + self.position_embedding
        return self.head(self.layers(tokens)[:, 0])

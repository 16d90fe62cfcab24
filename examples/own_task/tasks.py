"""A task of your own: a small GPT that predicts the next byte of text files, read as a stream."""

import pathlib
import random
import sysconfig

import torch.utils.data
from torch import nn

from trainers import tasks


class Windows(torch.utils.data.IterableDataset):
    def __init__(self, files, size):
        self.files, self.size = files, size

    def __iter__(self):
        # The trainer seeds Python's random numbers by epoch, equally in all processes.
        for file in random.sample(self.files, len(self.files)):
            text = torch.tensor(list(file.read_bytes()))
            yield from text[: len(text) // self.size * self.size].view(-1, self.size)


class GPT(nn.Module):
    def __init__(self, length, width, depth):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(length, width)
        options = {"norm_first": True, "batch_first": True, "dropout": 0.0}
        layers = [nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(depth)]
        self.blocks, self.head = nn.ModuleList(layers), nn.Linear(width, 256)

    def forward(self, tokens):  # [B, T] to logits [B, T, 256]
        x = self.tokens(tokens) + self.positions.weight
        mask = nn.Transformer.generate_square_subsequent_mask(len(x[0]), device=x.device)
        for block in self.blocks:
            x = block(x, mask, is_causal=True)
        return self.head(x)


class NextByte(tasks.Task):
    unit = "tokens"  # of the throughput

    def __init__(self, folder=None, length=64, width=64, depth=2):
        self.files = sorted(pathlib.Path(folder or sysconfig.get_path("stdlib")).glob("*.py"))
        self.units_per_sample, self.sizes = length, (length, width, depth)

    def model(self):
        return GPT(*self.sizes)

    def train_data(self):
        return Windows(self.files[10:], self.units_per_sample + 1)

    def eval_data(self):
        return Windows(self.files[:10], self.units_per_sample + 1)

    def losses(self, model, batch):  # of each sample, [B]
        logits, targets = model(batch[:, :-1]).transpose(1, 2), batch[:, 1:]
        losses = nn.functional.cross_entropy(logits.float(), targets, reduction="none").mean(1)
        return losses, {"accuracy": (logits.argmax(1) == targets).float().mean(1)}

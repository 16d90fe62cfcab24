"""Classifiers, each built from the shape of a sample and the number of classes.

Their outputs are logits. Names that begin with the name of a source document are models of that
source as published, for comparison; the others are recommended.
"""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainers.models import har, small, vit, wide_resnet

cnn = small.cnn
mlp = small.mlp

MODELS: Mapping[str, Callable[[torch.Size, int], nn.Module]] = {
    "cnn": small.cnn,
    "mlp": small.mlp,
    "cnn1d": har.cnn1d,
    "vit": vit.vit,
    "wrn-16-4": functools.partial(wide_resnet.wide_resnet, depth=16, widen_factor=4),
    "wrn-16-8": functools.partial(wide_resnet.wide_resnet, depth=16, widen_factor=8),
    "wrn-16-10": functools.partial(wide_resnet.wide_resnet, depth=16, widen_factor=10),
    "wrn-28-10": functools.partial(wide_resnet.wide_resnet, depth=28, widen_factor=10),
    "wrn-40-4": functools.partial(wide_resnet.wide_resnet, depth=40, widen_factor=4),
    "sca-cnn": small.sca_cnn,
    "har-flatten": functools.partial(har.har_classifier, mode="flatten"),
    "har-average": functools.partial(har.har_classifier, mode="average"),
    "har-first": functools.partial(har.har_classifier, mode="first"),
    "olivia-wrn": wide_resnet.olivia_wrn,
    "lesson-mlp": small.lesson_mlp,
}


def num_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)

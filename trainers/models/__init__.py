"""Classifiers, built from the shape of a sample and the number of classes; they return logits."""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainers import errors
from trainers.data.vision import TORCHVISION
from trainers.models import networks

MODELS: Mapping[str, Callable[[torch.Size, int], nn.Module]] = {
    "cnn": networks.cnn,
    "mlp": functools.partial(networks.mlp, width=128),
    "cnn1d": networks.cnn1d,
    **{
        f"wrn-{depth}-{width}": functools.partial(networks.wide_resnet, depth=depth, width=width)
        for depth, width in ((16, 4), (16, 8), (16, 10), (28, 10), (40, 4))
    },
    "sca-cnn": networks.sca_cnn,
    **{
        f"har-{mode}": functools.partial(networks.ChannelClassifier, mode=mode)
        for mode in ("flatten", "average", "first")
    },
    "olivia-wrn": networks.olivia_wrn,
    # SimpleModel of Lesson 05, there with 20 numbers and 10 classes.
    "lesson-mlp": functools.partial(networks.mlp, width=64),
}


def check_name(name: str) -> str:
    return errors.check_name("--model ", name, [*MODELS, f"{TORCHVISION}NAME"])


def build(name: str, sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Return the model with random weights; raise UsageError if it does not accept the samples."""
    check_name(name)
    make = MODELS[name] if name in MODELS else functools.partial(_build_torchvision, name)
    try:
        model = make(sample_shape, num_classes)
        with torch.no_grad():
            model.eval()(torch.zeros(1, *sample_shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise errors.UsageError(
            f"--model {name} does not accept samples of the shape"
            f" {' x '.join(map(str, sample_shape))} ({error}): use another model, another data set"
            " or --image-size."
        ) from error
    return model.train()


def _build_torchvision(name: str, sample_shape: torch.Size, num_classes: int) -> nn.Module:
    module = errors.import_package("torchvision.models", "torchvision", f"--model {name}")
    builder = name.removeprefix(TORCHVISION)
    errors.check_name(f"--model {TORCHVISION}", builder, module.list_models(module=module))
    options = {}
    if builder.startswith("vit_"):
        options["image_size"] = sample_shape[-1]
    if builder in ("googlenet", "inception_v3"):
        # Their auxiliary outputs would need a loss of their own.
        options |= {"aux_logits": False, "init_weights": True}
    return module.get_model(builder, weights=None, num_classes=num_classes, **options)

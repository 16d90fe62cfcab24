"""Classifiers, each built from the shape of a sample and the number of classes.

Their outputs are logits. Names that begin with the name of a source document are models of that
source as published, for comparison; the others are recommended.
"""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import nn

from trainers import errors
from trainers.models import small, vit, wide_resnet

TORCHVISION = "torchvision:"

MODELS: Mapping[str, Callable[[torch.Size, int], nn.Module]] = {
    "cnn": small.cnn,
    "mlp": functools.partial(small.mlp, width=128),
    "cnn1d": small.cnn1d,
    "vit": vit.VisionTransformer,
    **{
        f"wrn-{depth}-{factor}": functools.partial(
            wide_resnet.wide_resnet, depth=depth, widen_factor=factor
        )
        for depth, factor in ((16, 4), (16, 8), (16, 10), (28, 10), (40, 4))
    },
    "sca-cnn": small.sca_cnn,
    **{
        f"har-{mode}": functools.partial(small.ChannelClassifier, mode=mode)
        for mode in ("flatten", "average", "first")
    },
    "olivia-wrn": wide_resnet.olivia_wrn,
    # SimpleModel of Lesson 05, there with 20 numbers and 10 classes.
    "lesson-mlp": functools.partial(small.mlp, width=64),
}


def check_name(name: str) -> str:
    """Return the name of a model; raise UsageError if it is unknown."""
    if name.startswith(TORCHVISION):
        return name  # torchvision is imported when the model is built
    return errors.check_name("--model ", name, [*MODELS, f"{TORCHVISION}NAME"])


def build(name: str, sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Return the model with random weights; raise UsageError if it does not accept the samples."""
    if check_name(name) in MODELS:
        return MODELS[name](sample_shape, num_classes)
    module = errors.import_package("torchvision.models", "torchvision", f"--model {name}")
    builder = name.removeprefix(TORCHVISION)
    errors.check_name(f"--model {TORCHVISION}", builder, module.list_models(module=module))
    options = {}
    if builder.startswith("vit_"):
        options["image_size"] = sample_shape[-1]
    if builder in ("googlenet", "inception_v3"):
        # Their auxiliary outputs would need a loss of their own.
        options |= {"aux_logits": False, "init_weights": True}
    try:
        model = module.get_model(builder, weights=None, num_classes=num_classes, **options)
        with torch.no_grad():
            model.eval()(torch.zeros(1, *sample_shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise errors.UsageError(
            f"--model {name} does not accept samples of the shape"
            f" {' x '.join(map(str, sample_shape))} ({error}): use another model or --image-size."
        ) from error
    return model.train()


def num_parameters(model: nn.Module) -> int:
    """Return the number of parameters, including those that are not trained."""
    return sum(parameter.numel() for parameter in model.parameters())

"""What to think of where a job on several ranks did not fail, and yet is not as expected. Pure.

Source: what guides to data parallel training list as troubles: other accuracy than on one GPU
(the global batch grew with the ranks), the same random numbers on all ranks, slow start.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Names under which programs take the samples of one rank and step.
_PER_RANK = (
    "per_device_batch_size",
    "per_device_train_batch_size",
    "micro_batch_size",
    "batch_size_per_gpu",
    "samples_per_gpu",
)


def of_ranks(arguments: Mapping[str, object], world_size: int, *, ours: bool) -> tuple[str, ...]:
    """Return what holds for a job of so many ranks with these arguments; nothing for one rank.

    `ours`: the program is the trainer here, which gives each rank its own random numbers.
    """
    if world_size < 2:
        return ()
    found = []
    for name in _PER_RANK:
        batch = arguments.get(name)
        # A global batch beside it says that it was kept.
        if isinstance(batch, int) and not isinstance(batch, bool) and "batch_size" not in arguments:
            found.append(
                f"other accuracy than on one GPU: {name} = {batch} on {world_size} ranks is a "
                f"global batch of {batch * world_size}; scale the learning rate with it and warm "
                "it up, or keep the global batch"
            )
            break
    if "seed" in arguments and not ours:
        found.append(
            f"seed = {arguments['seed']} for all ranks makes all draw the same augmentations: in "
            "the program add the rank to it, after the model is made"
        )
    return tuple(found)

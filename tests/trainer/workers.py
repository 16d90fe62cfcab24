"""Ends the DataLoader workers of what a test has left."""

import contextlib
import weakref
from typing import Any

_iterators: weakref.WeakSet[Any] = weakref.WeakSet()


def watch() -> None:
    """Remember the iterators with workers from now on."""
    with contextlib.suppress(ImportError):
        # Not above: the number of threads is set before PyTorch is imported.
        from torch.utils.data import dataloader

        begin = dataloader._MultiProcessingDataLoaderIter.__init__

        def remembered(self: Any, loader: Any) -> None:
            begin(self, loader)
            _iterators.add(self)

        dataloader._MultiProcessingDataLoaderIter.__init__ = remembered


def end() -> None:
    """End their workers.

    Where only garbage refers to an iterator, Python's collector closes the queues to its workers
    before it asks them to end, and it then waits 5 s for each of them.
    """
    for iterator in tuple(_iterators):
        iterator._shutdown_workers()

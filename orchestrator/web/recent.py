"""Values that take time to compute, kept until others were used later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """The values of the keys that were used last. Several threads may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[_Key, _Value] = {}
        self._lock = threading.Lock()

    def of(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return the value of a key; it is made if it is not known."""
        with self._lock:
            if key in self._values:
                self._values[key] = self._values.pop(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                del self._values[next(iter(self._values))]
        return value

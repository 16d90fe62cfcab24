"""The type of a program argument."""

from __future__ import annotations

from typing import TypeAlias

ArgumentValue: TypeAlias = str | int | float | bool | tuple[str | int | float, ...]

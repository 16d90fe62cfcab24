"""What an argument of a program may be."""

from __future__ import annotations

from typing import TypeAlias

ArgumentValue: TypeAlias = str | int | float | bool | tuple[str | int | float, ...]

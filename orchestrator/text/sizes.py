"""Numbers of bytes for people."""

from __future__ import annotations

_PREFIXES = ("", "k", "M", "G", "T", "P")


def text(size_bytes: int) -> str:
    """Return bytes with three significant digits in decimal units: `512 B`, `1.23 GB`."""
    value = float(size_bytes)
    for prefix in _PREFIXES:
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
        value /= 1000
    digits = f"{value:.0f}" if value >= 99.95 or not prefix else f"{value:.3g}"
    return f"{digits} {prefix}B"

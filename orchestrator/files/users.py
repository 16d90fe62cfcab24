"""The user's name and home folder."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the user's name; the user ID without a user database, as in a container."""
    if name := os.environ.get("LOGNAME") or os.environ.get("USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def home_folder() -> str:
    """Return the home folder in the user database; / without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"

"""The user of this process, also without a user database: in a container, or while LDAP is down."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the user's name, like getpass.getuser(); the user ID if it is not known."""
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

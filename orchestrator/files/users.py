"""Who runs this process, also where the user database does not know: a container, or LDAP away."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the user's name, as getpass.getuser() does; where nobody knows it, the user ID."""
    for variable in ("LOGNAME", "USER"):
        if name := os.environ.get(variable):
            return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def home_folder() -> str:
    """Return the home folder of the user database, / where it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"

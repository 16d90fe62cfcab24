"""`[notices.X] kind = "file"`: appends each notification to a file."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator import plugins


def _append(notification: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    with open(settings["path"], "a", encoding="utf-8") as file:
        file.write(json.dumps(dict(notification)) + "\n")


FILE = plugins.NotificationChannel(send=_append)

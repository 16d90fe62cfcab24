"""Plugins: launchers, container runtimes, notification channels and log patterns of other packages.

An entry point of a group below names an object of the class beside it. It is loaded only when a
spec or the configuration contains its name. Entry points come from the Python environment that runs
orchestrator, which the user trusts already.
"""

from orchestrator.plugins.loading import PluginError, installed, load, unknown
from orchestrator.plugins.records import (
    ContainerRuntime,
    Launcher,
    LogPatterns,
    NotificationChannel,
    Plugin,
)

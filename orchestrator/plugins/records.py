"""What an entry point of each group is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plugin:
    #: of the entry points
    group: ClassVar[str]
    #: what messages call it
    noun: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the types of the fields; raises TypeError."""
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal:
                if value not in get_args(hint):
                    raise TypeError(f"{name} must be one of {', '.join(get_args(hint))}")
            elif hint in (str, bool) and type(value) is not hint:
                raise TypeError(f"{name} must be {hint.__name__} (got {value!r})")
            elif get_origin(hint) is Callable and not callable(value):
                raise TypeError(f"{name} must be a function (got {value!r})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launcher(Plugin):
    """Starts the program: `launch.launcher = "NAME"`."""

    group = "orchestrator.launchers"
    noun = "launcher"

    #: Jinja text of the launch part of the script; docs/howto/plugins.md describes it
    template: str
    #: the launcher with the same tasks and ranks: torchrun has one task per node, srun one per
    #: rank, python one in all
    like: Literal["torchrun", "srun", "python"] = "srun"
    #: False: it also works on a machine without Slurm
    needs_slurm: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContainerRuntime(Plugin):
    """Runs the program in an image: `container.runtime = "NAME"`."""

    group = "orchestrator.container_runtimes"
    noun = "container runtime"

    #: Jinja text that sets the bash array `orchestrator_container` to the words that start it
    template: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotificationChannel(Plugin):
    """Sends notifications: `[notices.X] kind = "NAME"`."""

    group = "orchestrator.notification_channels"
    noun = "notification channel"

    #: called with the notification, which has the fields that a command gets as JSON on stdin, and
    #: the table `[notices.X.settings]`; it raises an exception if the receiver did not accept it
    send: Callable[[Mapping[str, Any], Mapping[str, Any]], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPatterns(Plugin):
    """Finds metrics in logs: `metrics.patterns = ["NAME"]`."""

    group = "orchestrator.log_patterns"
    noun = "log pattern"

    #: TOML text, as in a pattern file, with the table [NAME]
    text: str

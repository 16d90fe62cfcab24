"""The functions of the API, with the session of this thread for the current folder."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from orchestrator.api import sessions

if TYPE_CHECKING:
    from orchestrator.api.sessions import Session

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _of_current(method: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Return the method as a function, for the session of this thread."""

    @functools.wraps(method)
    def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(sessions.current(), *args, **kwargs)

    # Without `self`, which the wrapped method has.
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


job = _of_current(sessions.Session.job)
jobs = _of_current(sessions.Session.jobs)
render = _of_current(sessions.Session.render)
submit = _of_current(sessions.Session.submit)
sweep = _of_current(sessions.Session.sweep)

"""The closest command or option for one that does not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click


class Group(click.Group):
    """A group that suggests the closest command for an unknown one."""

    #: Unknown command -> what to call instead.
    hints: ClassVar[Mapping[str, str]] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None:
            import difflib

            if hint := self.hints.get(name):
                ctx.fail(f"No such command {name!r}. {hint}")
            # click would search only the commands that are loaded already.
            if close := difflib.get_close_matches(name, self.list_commands(ctx), n=1):
                ctx.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)


def with_closest(error: click.NoSuchOption, words: Sequence[str]) -> click.NoSuchOption:
    """Return the error with only the closest of its possibilities, which click lists by letter.

    words: the command line. If it names a script, the option may be meant for that.
    """
    closest = (error.possibilities or [])[:1]
    script = next((word for word in words if word.endswith((".py", ".sh", ".sbatch"))), None)
    message = None
    if script is not None and "--" not in words:
        name = error.option_name
        message = f"No such option: {name}. Options of {script} follow `--`: {script} -- {name}"
        closest = []
    return click.NoSuchOption(error.option_name, message, possibilities=closest, ctx=error.ctx)

"""Commands as functions. The default of each parameter declares the option that sets it.

    @commands.command("hold")
    def hold(context: Context, selection: Selection = options.selection) -> None:

Options appear in --help in the order of the parameters. A first parameter `context` without a
default is the opened Context; a first parameter `ctx` is click's context.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import click

from orchestrator import errors
from orchestrator.cli import output, session
from orchestrator.cli.arguments import suggestions

Function = Callable[..., Any]


class Declaration(typing.Protocol):
    """The default of a function's parameter."""

    def parameters(self, name: str) -> list[click.Parameter]:
        """Return the options and arguments that set the function's parameter `name`."""

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of the function's parameter, from click's values."""


@dataclasses.dataclass(frozen=True)
class _Parameter:
    make: Callable[[str], click.Parameter]

    def parameters(self, name: str) -> list[click.Parameter]:
        return [self.make(name)]

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        # Without a value if the option has `expose_value=False`.
        return values.get(name)


@dataclasses.dataclass(frozen=True)
class _Record:
    """A dataclass whose fields have declarations as defaults."""

    kind: type

    def parameters(self, name: str) -> list[click.Parameter]:
        return [made for name, item in self._declarations() for made in item.parameters(name)]

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        return self.kind(**{name: item.value(name, values) for name, item in self._declarations()})

    def _declarations(self) -> list[tuple[str, Any]]:
        return [(field.name, field.default) for field in dataclasses.fields(self.kind)]


def argument(kind: type[click.Argument] = click.Argument, **settings: Any) -> Any:
    """Declare an argument, with the settings of click.Argument."""
    return _Parameter(lambda name: kind([name], **settings))


def option(
    names: str,
    help: str,
    value: Any = None,
    *,
    metavar: str | None = None,
    default: Any = None,
    multiple: bool = False,
    **settings: Any,
) -> Any:
    """Declare an option with the names of `names`, separated by spaces.

    value: None for a flag, the metavar of a text, or a type.
    """
    if isinstance(value, str):
        metavar, value = value, click.STRING
    elif value is None:
        settings["is_flag"] = True
    elif isinstance(value, click.IntRange):
        metavar = metavar or "N"
    # An explicit default of None would satisfy `required`; --x/--no-x needs it to tell "not given".
    if default is not None or "/" in names:
        settings["default"] = default
    settings |= {
        "help": f"{help} Can be repeated." if multiple else help,
        "type": value,
        "metavar": metavar,
        "show_default": default is not None,
        "multiple": multiple,
    }
    return _Parameter(lambda name: click.Option([*names.split(), name], **settings))


def record(kind: type) -> Any:
    """Declare a parameter whose value is a `kind`, a dataclass with declarations as defaults."""
    return _Record(kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effects:
    """What a command does besides printing."""

    #: jobs: it submits, cancels or changes jobs; other: it changes something else by the user's
    #: will, such as schedules, the configuration or rows of the database
    changes: Literal["nothing", "jobs", "other"]
    #: with which values of its parameters; None: always
    when: Callable[[Mapping[str, Any]], bool] | None = None
    #: kinds of the JSON that it prints (rows/contract/kinds.py)
    prints: Sequence[str] = ()

    def changes_with(self, values: Mapping[str, Any]) -> bool:
        """Return whether the command changes something with these values."""
        return self.changes != "nothing" and (self.when is None or bool(self.when(values)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Callback:
    function: Function
    effects: Effects
    declarations: Mapping[str, Declaration]

    def __call__(self, **values: Any) -> Any:
        ctx = click.get_current_context()
        is_changing = self.effects.changes_with(values)
        if session.approval_of(ctx) is not None:
            if not is_changing or self.effects.changes != "jobs":
                raise click.UsageError(
                    f"`{ctx.command_path}` cannot be planned: only commands that submit, cancel or "
                    "change jobs can"
                )
        elif is_changing:
            session.refuse_if_read_only(ctx)
        given = {name: item.value(name, values) for name, item in self.declarations.items()}
        signature = inspect.signature(self.function).parameters
        try:
            if "context" in signature:
                return self.function(session.open_context(ctx), **given)
            return self.function(ctx, **given) if "ctx" in signature else self.function(**given)
        except errors.RequestError as error:
            raise click.UsageError(str(error)) from error


def effects_of(command: click.Command) -> Effects | None:
    """Return what a command does; None: a group of commands."""
    callback = command.callback
    return callback.effects if isinstance(callback, _Callback) else None


def command(
    name: str,
    *examples: str,
    changes: Literal["nothing", "jobs", "other"],
    when: Callable[[Mapping[str, Any]], bool] | None = None,
    prints: Sequence[str] = (),
    table: Sequence[output.Column] = (),
    kind: type[click.Command] = click.Command,
    **settings: Any,
) -> Callable[[Function], Any]:
    """Return a decorator that makes a function a command.

    Its help is the function's docstring, followed by the columns of its `table` that do not fit a
    narrow terminal, and the examples. changes, when, prints: see Effects.
    """
    heading = "Example:" if len(examples) == 1 else "Examples:"
    # click wraps paragraphs unless they start with \b.
    epilog = "\n  ".join([f"\b\n{heading}", *examples])

    def decorate(function: Function) -> click.Command:
        declarations: dict[str, Declaration] = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        callback = _Callback(
            function=function,
            effects=Effects(changes=changes, when=when, prints=prints),
            declarations=declarations,
        )
        parameters = [made for name, item in declarations.items() for made in item.parameters(name)]
        paragraphs = [inspect.getdoc(function), output.left_out(table), epilog]
        help = "\n\n".join(filter(None, paragraphs))
        return kind(name, callback=callback, params=parameters, help=help, **settings)

    return decorate


class Group(suggestions.Group):
    """A group that lists its commands in the order of their definition."""

    def command(  # type: ignore[override]
        self, name: str, *examples: str, **settings: Any
    ) -> Callable[[Function], click.Command]:
        """Return a decorator that adds a function as a command of this group; see command()."""

        def decorate(function: Function) -> click.Command:
            made: click.Command = command(name, *examples, **settings)(function)
            self.add_command(made)
            return made

        return decorate

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = self.commands.items()
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=200)) for name, command in commands]
            )

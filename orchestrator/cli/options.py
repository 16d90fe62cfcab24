"""Options and parameter types that several commands share."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from orchestrator.cli import completion, output

#: Longest duration: a later planned time could not be stored.
_MAX_DAYS = 366

Command = Callable[..., Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The jobs that a command is to act on."""

    references: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    sweeps: tuple[str, ...]


class Group(click.Group):
    """A group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(limit=200))
                    for name, command in self.commands.items()
                ]
            )


def seconds(*, least: float = 0) -> Callable[[str], float]:
    """Return a parameter type. It refuses `nan`, a time-out that never passes."""

    def convert(text: str) -> float:
        number = click.FLOAT(text)
        if not number >= least:
            raise click.BadParameter(f"{text!r}: must be a number of seconds, {least:g} or more")
        return number

    return convert


def duration(text: str) -> int:
    """Return the seconds of a duration such as `90`, `10m` or `1h30m`."""
    try:
        length = parse_duration(text)
    except ValueError as exc:
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 10m, 6h or 1d") from exc
    if length > _MAX_DAYS * 86400:
        raise click.BadParameter(f"{text!r} is too long: write at most {_MAX_DAYS}d")
    return length


def time(text: str) -> datetime.datetime:
    """Return a point in time, written in the formats of sacct."""
    try:
        return parse_time(text, datetime.datetime.now(datetime.UTC))
    except ValueError as exc:
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-11-20, 2026-11-20T10:05, 10:05, yesterday, 3days "
            "or now-2hours"
        ) from exc


def number_range(text: str) -> tuple[int | None, int | None]:
    """Return the ends of `A:B`, `A:`, `:B` or one number."""
    first, colon, last = text.partition(":")
    try:
        ends = [int(end) if end.strip() else None for end in (first, last if colon else first)]
    except ValueError:
        ends = []
    # SQLite's integers have 64 bits.
    if not text.strip(": ") or not ends or any(abs(end or 0) >= 2**63 for end in ends):
        raise click.BadParameter(f"{text!r} is not a range: write A:B, A:, :B or one number")
    begin, end = ends
    if begin is not None and end is not None and begin > end:
        raise click.BadParameter(f"{text!r} ends before it begins: write {end}:{begin}")
    return begin, end


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(
    r"(?:now *-)? *(?P<count>\d+) *"
    r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|[smhdw])(?: +ago)?"
)
_DURATION = re.compile(r"(?:\d+[smhdw])+")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
#: sacct's words for an hour of the day (man sacct, "Time values"); `today` is midnight.
_HOURS = {"midnight": 0, "today": 0, "noon": 12, "teatime": 16}


def parse_time(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that `text` means; only a written date may be in the future.

    Accepts `2026-11-20`, `2026-11-20T10:05`, `10:05` (the last time it was), `yesterday`, `today`,
    `noon`, `now`, `2hours`, `now-2hours`, `2 hours ago`. Without a zone it is local time. Raises
    ValueError.
    """
    words = " ".join(text.lower().split())
    local = now.astimezone()
    try:
        if words == "now":
            return now
        if match := _AGO.fullmatch(words):
            unit = _UNITS[match["unit"][0]]
            return now - datetime.timedelta(**{unit: int(match["count"])})
        if words == "yesterday":
            return _on_day(local, datetime.time(), days_ago=1)
        if words in _HOURS:
            return _latest(local, datetime.time(_HOURS[words]))
        if match := _CLOCK.fullmatch(words):
            hour, minute, second = (int(part or 0) for part in match.groups())
            return _latest(local, datetime.time(hour, minute, second))
        at = datetime.datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.astimezone()).astimezone(datetime.UTC)
    except OverflowError as exc:
        raise ValueError(f"too long ago: {text}") from exc


def parse_duration(text: str) -> int:
    """Return the seconds of `90`, `10m`, `6h`, `1h30m` or `2d`. Raises ValueError."""
    text = text.strip().lower()
    if text.isascii() and text.isdecimal():
        text += "s"
    if not _DURATION.fullmatch(text):
        raise ValueError(f"not a duration: {text!r}")
    try:
        parts = re.findall(r"(\d+)([smhdw])", text)
        total = sum(
            (datetime.timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts),
            datetime.timedelta(),
        )
    except OverflowError as exc:
        raise ValueError(f"too long: {text!r}") from exc
    return int(total.total_seconds())


def _latest(local: datetime.datetime, clock: datetime.time) -> datetime.datetime:
    today = _on_day(local, clock, days_ago=0)
    return today if today <= local else _on_day(local, clock, days_ago=1)


def _on_day(local: datetime.datetime, clock: datetime.time, *, days_ago: int) -> datetime.datetime:
    day = local.date() - datetime.timedelta(days=days_ago)
    # astimezone() takes the UTC offset of that day: daylight saving time may have changed since.
    return datetime.datetime.combine(day, clock).astimezone(datetime.UTC)


#: How values of these types are shown in the help.
_METAVARS = {duration: "DURATION", time: "TIME"}


def option(
    names: str,
    help: str,
    value: Any = None,
    *,
    dest: str | None = None,
    metavar: str | None = None,
    default: Any = None,
    multiple: bool = False,
    **settings: Any,
) -> Callable[[Command], Command]:
    """Return a click option with the names of `names`, separated by spaces.

    value: None for a flag, the metavar of a text, or a type.
    """
    if isinstance(value, str):
        metavar, value = value, click.STRING
    elif isinstance(value, click.IntRange):
        metavar = metavar or "N"
    elif value is None:
        settings["is_flag"] = True
    else:
        metavar = metavar or _METAVARS.get(value)
    # An explicit default of None would satisfy `required`; --x/--no-x needs it to tell "not given".
    if default is not None or "/" in names:
        settings["default"] = default
    return click.option(
        *names.split(),
        *([dest] if dest else []),
        help=f"{help} Can be repeated." if multiple else help,
        type=value,
        metavar=metavar,
        show_default=default is not None,
        multiple=multiple,
        **settings,
    )


def formats_option(formats: Sequence[str], default: str) -> Callable[[Command], Command]:
    """Add --format and --json; the command gets `form`, None if neither is given."""
    format_ = option(
        "--format", f"Output format. Default: {default}.", click.Choice(formats), dest="form"
    )
    json_ = option("--json", "Same as --format json.", dest="as_json")

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(*args: Any, form: str | None, as_json: bool, **kwargs: Any) -> Any:
            return function(*args, form="json" if as_json else form, **kwargs)

        return format_(json_(command))

    return decorate


#: Adds --format and --json; the command gets `form`, None if neither is given.
optional_format = formats_option(output.FORMATS, "table on a terminal, otherwise tsv")


def format_option(function: Command) -> Command:
    """Add --format and --json; the command gets `form`, the format to print."""

    @optional_format
    @functools.wraps(function)
    def command(*args: Any, form: str | None, **kwargs: Any) -> Any:
        return function(*args, form=form or output.default_format(), **kwargs)

    return command


def refuse_format(option: str, form: str | None) -> None:
    """Raise UsageError if --format or --json is given with an option that prints plain text."""
    if form is not None:
        raise click.UsageError(f"{option} prints plain text: remove --format or --json")


limit_option = option(
    "-n --limit",
    "Show at most this many, the newest ones.",
    click.IntRange(min=1, max=10**9),
    default=100,
)
refresh_option = option(
    "--refresh/--no-refresh",
    "Ask Slurm now, or not at all. Default: ask if the stored state is older than the "
    "profile's poll_floor_seconds.",
)
yes_option = option("-y --yes", "Do not ask for confirmation.")
jobs_argument = click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completion.job_references
)
sweeps_option = option("--sweep", "All jobs of a sweep.", "SWEEP", dest="sweeps", multiple=True)
wait_option = option(
    "--wait", "Wait until all jobs end; exit with 1 unless all are COMPLETED.", dest="wait_"
)
queue_option = option(
    "--queue/--no-queue",
    "Defer the submission when Slurm refuses it because of a limit, and send it later. "
    "Default: the profile's queue_submissions.",
)


def job_selection(function: Command) -> Command:
    """Add [JOB...], --name, --label and --sweep; the command gets a Selection."""

    @jobs_argument
    @option("--name", "All live jobs with this name.", "NAME", dest="names", multiple=True)
    @option("--label", "All live jobs with this label.", "KEY=VALUE", dest="labels", multiple=True)
    @sweeps_option
    @functools.wraps(function)
    def command(
        *args: Any,
        references: tuple[str, ...],
        names: tuple[str, ...],
        labels: tuple[str, ...],
        sweeps: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        selection = Selection(references=references, names=names, labels=labels, sweeps=sweeps)
        return function(*args, selection=selection, **kwargs)

    return command


def names_list(text: str) -> tuple[str, ...]:
    """Return the names of a list separated by commas. An empty name may be an unset variable."""
    names = tuple(text.split(","))
    if not all(names):
        raise click.BadParameter(f"{text!r} contains an empty name")
    return names


def _joined(ctx: click.Context, param: click.Parameter, lists: Any) -> tuple[str, ...]:
    return tuple(name for names in lists for name in names)


def job_filter(function: Command) -> Command:
    """Add --name, --label and --partition, with the names of JobQuery's fields."""
    name = option("--name", "Only jobs with this name.", "NAME", dest="names", multiple=True)
    label = option(
        "--label", "Only jobs with this label.", "KEY=VALUE", dest="labels", multiple=True
    )
    partition = option(
        "-p --partition",
        "Only these partitions.",
        names_list,
        metavar="NAME,...",
        dest="partitions",
        callback=_joined,
        multiple=True,
    )
    return name(label(partition(function)))


def _set_scheduler(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.obj = {**(ctx.obj or {}), "scheduler": value}


#: Its value joins the options that precede the command's name.
scheduler_option = option(
    "--scheduler",
    "Where the job runs. auto: Slurm if sbatch is on PATH, otherwise this machine.",
    click.Choice(["auto", "slurm", "local"]),
    expose_value=False,
    callback=_set_scheduler,
)

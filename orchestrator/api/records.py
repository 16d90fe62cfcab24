"""Records: rows with the fields of the JSON contract, and how a notebook shows them."""

from __future__ import annotations

import datetime
import enum
import html
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from orchestrator import errors
from orchestrator.rows import row_values

if TYPE_CHECKING:
    import pandas
    import polars

#: A notebook shows so many rows.
_SHOWN_ROWS = 20
#: Fields with a time.
_TIMES = ("time", "since")


class Records(list[dict[str, Any]]):
    """A list of dictionaries: the items that the command prints with --json.

    Names and types are those of JSON, so times are ISO 8601 texts. Only NaN and infinity, which
    JSON has as text, are numbers here.
    """

    def __init__(self, records: Iterable[dict[str, Any]] = (), *, item: type | None = None) -> None:
        """Take the records; item: the TypedDict of each, which names columns also without any."""
        super().__init__(records)
        self._item = item

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame of pandas; times become timestamps in UTC.

        The columns are the same for all jobs. A column of integers in which some are missing has
        floats, as usual in pandas.

        Raises:
            errors.OrchestratorError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise _missing("pandas", error) from error
        columns = self._columns()
        frame = pandas.DataFrame(self._with_times(), columns=list(columns))
        # Columns without any value have them too.
        dtypes = {name: "datetime64[us, UTC]" for name in columns if _is_time(name)}
        for name, kind in columns.items():
            if kind in (int, float) and frame[name].dtype == object:
                dtypes[name] = "float64"
        return frame.astype(dtypes)

    def to_polars(self) -> polars.DataFrame:
        """Return a DataFrame of polars; times become timestamps in UTC.

        Columns and their types are the same for all jobs, so frames can be concatenated.

        Raises:
            errors.OrchestratorError: polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise _missing("polars", error) from error
        dtypes: dict[object, Any] = {int: polars.Int64, float: polars.Float64}
        dtypes |= {str: polars.String, bool: polars.Boolean}
        schema = {
            name: polars.Datetime("us", "UTC") if _is_time(name) else dtypes.get(kind)
            for name, kind in self._columns().items()
        }
        return polars.DataFrame(self._with_times(), schema=schema, infer_schema_length=None)

    def _columns(self) -> dict[str, object]:
        """Return the names of the columns, with the types of those that have a simple one."""
        hints = {} if self._item is None else get_type_hints(self._item)
        others = dict.fromkeys(name for record in self for name in record)
        return {name: _simple(hints.get(name)) for name in {**hints, **others}}

    def _with_times(self) -> list[dict[str, Any]]:
        return [
            {
                name: datetime.datetime.fromisoformat(value)
                if isinstance(value, str) and _is_time(name)
                else value
                for name, value in record.items()
            }
            for record in self
        ]

    def _repr_html_(self) -> str:
        more = f"<p>{len(self)} rows</p>" if len(self) > _SHOWN_ROWS else ""
        return table(list(self._columns()), self[:_SHOWN_ROWS]) + more


def _simple(hint: object) -> object:
    """Return int, float, str or bool if the values of a type are that or None; otherwise None."""
    if isinstance(hint, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        hint = rest[0] if len(rest) == 1 else None
    if get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, enum.StrEnum)):
        return str
    return hint if hint in (int, float, str, bool) else None


def _is_time(name: str) -> bool:
    return name in _TIMES or name.endswith("_at")


def _missing(name: str, error: ImportError) -> errors.OrchestratorError:
    return errors.OrchestratorError(
        f"{name} cannot be imported ({error}). Install it: pip install {name}"
    )


def plain(row: Mapping[str, object]) -> dict[str, Any]:
    """Return a row with values as JSON has them, but numbers that are not finite stay numbers."""
    return {name: _plain_value(value) for name, value in row.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, float):
        return value
    return str(value) if isinstance(value, str) else row_values.json_value(value)


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return an HTML table, with everything escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(row_values.cell(row.get(name)))}</td>" for name in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

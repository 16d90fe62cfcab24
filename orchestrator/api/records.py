"""Records: rows with the fields of the JSON contract, and how a notebook shows them."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame of pandas; times become timestamps in UTC.

        Raises:
            errors.OrchestratorError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise _missing("pandas", error) from error
        return pandas.DataFrame(self._with_times(), columns=self._columns())

    def to_polars(self) -> polars.DataFrame:
        """Return a DataFrame of polars; times become timestamps in UTC.

        Raises:
            errors.OrchestratorError: polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise _missing("polars", error) from error
        return polars.DataFrame(self._with_times(), infer_schema_length=None)

    def _columns(self) -> list[str]:
        return list(dict.fromkeys(name for record in self for name in record))

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
        return table(self._columns(), self[:_SHOWN_ROWS]) + more


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

"""Single inserts and updates, beside the ORM in one transaction."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from db import errors, models, sqlite

_SUBMISSIONS = models.Submission.__table__
_ADD = sa.insert(_SUBMISSIONS).returning(_SUBMISSIONS.c.id)  # type: ignore[arg-type]
_RENAME = (
    sa.update(_SUBMISSIONS)  # type: ignore[arg-type]
    .where(_SUBMISSIONS.c.cluster == sa.bindparam("of"))
    .values(name=_SUBMISSIONS.c.name + "2")
)
AT = datetime.datetime(2026, 11, 22, 9, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite.Database]:
    with sqlite.Database(tmp_path / "x.db") as opened:
        yield opened


def row(token: str) -> Mapping[str, Any]:
    texts = {"run_dir": "x", "script": "x", "spec": "{}", "provenance": "{}"}
    about = {"cluster": "c", "scheduler": "slurm", "name": "n", "created_at": AT}
    return {"token": token, **about, **texts}


def names(database: sqlite.Database) -> list[str]:
    with database.reading() as db:
        return list(db.scalars(sa.select(models.Submission.name).order_by(models.Submission.id)))


def test_an_insert_returns_its_key(database: sqlite.Database) -> None:
    with database.writing() as db:
        first, second = db.run(_ADD, row("a")), db.run(_ADD, row("b"))
    assert second == first + 1
    with database.reading() as db:
        stored = db.get_one(models.Submission, second)
        assert (stored.token, stored.created_at) == ("b", AT)
        assert stored.created_at.utcoffset() == datetime.timedelta()


def test_an_update_returns_how_many_rows_it_changed(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
        db.run(_ADD, row("b"))
        assert db.run(_RENAME, {"of": "c"}) == 2
        assert db.run(_RENAME, {"of": "another"}) == 0
    assert names(database) == ["n2", "n2"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_orm_and_single_statements_share_a_transaction(
    database: sqlite.Database, fails: bool
) -> None:
    def change() -> None:
        with database.writing() as db:
            number = db.run(_ADD, row("a"))
            assert db.scalar(sa.select(models.Submission.token)) == "a"
            db.add(models.Setting(key="k", value=str(number)))
            db.flush()
            # Not flushed: the commit does that.
            db.add(models.Setting(key="late", value="x"))
            if fails:
                raise RuntimeError("in between")

    if fails:
        with pytest.raises(RuntimeError, match="in between"):
            change()
    else:
        change()
    assert names(database) == ([] if fails else ["n"])
    with database.reading() as db:
        stored = sorted(db.scalars(sa.select(models.Setting.key)))
        assert {"k", "late"} & {*stored} == (set() if fails else {"k", "late"})


def test_nothing_is_stored_after_a_swallowed_error_of_the_orm(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
    with pytest.raises(exc.PendingRollbackError), database.writing() as db:
        db.add(models.Submission(**row("a")))
        with pytest.raises(exc.IntegrityError):
            db.flush()
        db.run(_ADD, row("b"))
    assert names(database) == ["n"]


def test_savepoints(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
        with pytest.raises(RuntimeError), db.begin_nested():
            db.run(_ADD, row("b"))
            raise RuntimeError
    assert names(database) == ["n"]


def test_a_refused_row(database: sqlite.Database) -> None:
    with pytest.raises(exc.IntegrityError, match=r"UNIQUE constraint failed: submissions\.token"):
        with database.writing() as db:
            db.run(_ADD, row("a"))
            db.run(_ADD, row("a"))
    with pytest.raises(exc.StatementError, match="without zone"), database.writing() as db:
        db.run(_ADD, {**row("b"), "created_at": AT.replace(tzinfo=None)})
    assert names(database) == []


def test_a_reader_cannot_change_anything(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
    with (
        pytest.raises(errors.StoreError, match="cannot be opened for writing"),
        database.reading() as db,
    ):
        db.run(_RENAME, {"of": "c"})
    assert names(database) == ["n"]

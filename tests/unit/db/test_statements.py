"""A session on a file, of which SQLAlchemy hears late: one transaction, whoever works in it."""

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


def test_what_the_driver_stored_alone_is_read_as_any_other(database: sqlite.Database) -> None:
    with database.writing() as db:
        first, second = db.run(_ADD, row("a")), db.run(_ADD, row("b"))
    assert second == first + 1
    with database.reading() as db:
        found = db.get(models.Submission, second)
        assert found is not None
        assert (found.token, found.created_at) == ("b", AT)
        assert found.created_at.utcoffset() == datetime.timedelta()


def test_an_update_tells_how_many_rows_it_changed(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
        db.run(_ADD, row("b"))
        assert db.run(_RENAME, {"of": "c"}) == 2
        assert db.run(_RENAME, {"of": "another"}) == 0
    assert names(database) == ["n2", "n2"]


def test_both_ways_see_and_store_the_same(database: sqlite.Database) -> None:
    with database.writing() as db:
        number = db.run(_ADD, row("a"))
        assert db.scalar(sa.select(models.Submission.token)) == "a"
        db.add(models.Setting(key="k", value=str(number)))
        db.flush()
        assert db.run(_RENAME, {"of": "c"}) == 1
    assert names(database) == ["n2"]
    with database.reading() as db:
        assert db.get_one(models.Setting, "k").value == str(number)


def test_what_the_orm_holds_back_is_stored_too(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
        db.add(models.Setting(key="k", value="v"))
    with database.reading() as db:
        assert db.get_one(models.Setting, "k").value == "v"
    assert names(database) == ["n"]


@pytest.mark.parametrize("by_orm", [False, True])
def test_an_error_takes_all_of_it_back(database: sqlite.Database, by_orm: bool) -> None:
    with pytest.raises(RuntimeError, match="in between"), database.writing() as db:
        db.run(_ADD, row("a"))
        if by_orm:
            db.add(models.Setting(key="k", value="v"))
            db.flush()
        raise RuntimeError("in between")
    assert names(database) == []
    with database.writing() as db:
        db.run(_ADD, row("b"))
        assert db.get(models.Setting, "k") is None
    assert names(database) == ["n"]


def test_a_session_that_only_asked_for_its_connection_commits(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.get_bind()
        db.run(_ADD, row("a"))
    assert names(database) == ["n"]


def test_a_swallowed_error_of_the_orm_stores_nothing_after_it(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
    with pytest.raises(exc.PendingRollbackError), database.writing() as db:
        db.add(models.Submission(**row("a")))
        with pytest.raises(exc.IntegrityError):
            db.flush()
        db.run(_ADD, row("b"))
    assert names(database) == ["n"]


def test_savepoints_and_rollbacks_hold_for_both_ways(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
        with pytest.raises(RuntimeError), db.begin_nested():
            db.run(_ADD, row("b"))
            raise RuntimeError
    assert names(database) == ["n"]
    with database.writing() as db:
        db.run(_ADD, row("c"))
        db.rollback()
    with pytest.raises(RuntimeError), database.writing() as db:
        db.add(models.Setting(key="k", value="v"))
        db.flush()
        db.rollback()
        db.run(_ADD, row("d"))
        raise RuntimeError
    assert names(database) == ["n"]


def test_a_refused_row_is_told_as_sqlalchemy_tells_it(database: sqlite.Database) -> None:
    with pytest.raises(exc.IntegrityError, match=r"UNIQUE constraint failed: submissions\.token"):
        with database.writing() as db:
            db.run(_ADD, row("a"))
            db.run(_ADD, row("a"))
    with pytest.raises(ValueError, match="without zone"), database.writing() as db:
        db.run(_ADD, {**row("b"), "created_at": AT.replace(tzinfo=None)})
    assert names(database) == []


def test_a_reader_changes_nothing_either_way(database: sqlite.Database) -> None:
    with database.writing() as db:
        db.run(_ADD, row("a"))
    with (
        pytest.raises(errors.StoreError, match="cannot be opened for writing"),
        database.reading() as db,
    ):
        db.run(_RENAME, {"of": "c"})
    assert names(database) == ["n"]

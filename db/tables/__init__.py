"""The tables. They use only types that SQLite and PostgreSQL share."""

from db.tables import jobs, metrics, service, sweeps
from db.tables.columns import METADATA

"""Clean-up: which run folders, checkpoints and rows of ended jobs may be removed. Pure."""

from orchestrator.prune.checkpoints import Entry, removable
from orchestrator.prune.decisions import UNSELECTED, own_reason, units
from orchestrator.prune.kinds import KINDS, kind_of_file
from orchestrator.prune.records import (
    EVENT,
    FOLDER,
    REQUESTED,
    ROWS,
    Kind,
    Mark,
    Member,
    Unit,
    leftover_name,
    leftover_token,
)

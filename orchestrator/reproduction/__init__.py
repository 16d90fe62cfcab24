"""What two jobs differ in, and whether runs that are compared had the same code. Pure."""

from orchestrator.reproduction.consistency import Identity, notes
from orchestrator.reproduction.differences import differences, differs, unknown
from orchestrator.reproduction.records import CodeVersion, Difference, Run

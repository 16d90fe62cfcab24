"""The environment of an attempt: Python, packages, modules, driver, GPUs and variables. Pure."""

from orchestrator.environments.differences import comparable, differences, flat
from orchestrator.environments.documents import from_json, sha256, to_json
from orchestrator.environments.files import LIMIT_BYTES, is_final, parse
from orchestrator.environments.images import SIF_HEADER_BYTES, Image, sif_id
from orchestrator.environments.libraries import versions
from orchestrator.environments.records import Environment, Placement, Record

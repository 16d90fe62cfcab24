"""Job specs: build a JobSpec from a TOML file, `--set` and flags, and store it as JSON."""

from __future__ import annotations

from orchestrator.specs import flags, loading, toml_tables
from orchestrator.toml import values

FLAGS = flags.FLAGS
Flag = flags.Flag
Setting = loading.Setting
build = loading.build
from_json = toml_tables.from_json
keys_given = loading.keys_given
load = loading.load
over = loading.over
read = loading.read
seconds = values.seconds
stored = toml_tables.stored
to_json = toml_tables.to_json
to_store = toml_tables.to_store

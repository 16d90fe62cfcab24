"""Open files that others may have prepared, replace files, and find who can change a path."""

from __future__ import annotations

from orchestrator.files import ownership, reading, writing

Exposure = ownership.Exposure
NotRegularFileError = reading.NotRegularFileError
PrivateFolderError = ownership.PrivateFolderError
TooLargeError = reading.TooLargeError
exposure = ownership.exposure
home_folder = ownership.home_folder
interpreter = reading.interpreter
make_private_folder = ownership.make_private_folder
open_descriptor = reading.open_descriptor
open_regular = reading.open_regular
read_bytes = reading.read_bytes
read_text = reading.read_text
DRAFTS = writing.DRAFTS
replace = writing.replace
sync = writing.sync
time_of = reading.time_of
user_name = ownership.user_name

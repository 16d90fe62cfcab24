"""Container images: their architecture, and the definition files they are built from. Pure."""

from orchestrator.images.architectures import HEAD_BYTES, alias, architecture, fits
from orchestrator.images.definitions import (
    CopiedFile,
    Definition,
    DefinitionError,
    checksums,
    digest,
    parse,
)

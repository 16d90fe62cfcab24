"""`container.runtime = "unshare"`: runs the program in a folder, with unshare and chroot."""

from orchestrator import plugins

UNSHARE = plugins.ContainerRuntime(
    template="""\
# ---- Container: unshare
orchestrator_container=(
  unshare --map-root-user chroot {{ spec.container.image | sh }}
  env "ORCHESTRATOR_RUN_DIR=$ORCHESTRATOR_RUN_DIR"
)
"""
)

"""Commands on jobs: cancel, hold, release, requeue, wait."""

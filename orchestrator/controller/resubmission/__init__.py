"""Submit deferred jobs and resubmit ended ones."""

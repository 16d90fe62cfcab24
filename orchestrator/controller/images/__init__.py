"""Container images: checked before a submission, and built by jobs."""

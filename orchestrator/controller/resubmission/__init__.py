"""What is sent again: deferred submissions, and jobs that ended."""

"""One store per subject: the statements within one transaction, and their conversion to records."""

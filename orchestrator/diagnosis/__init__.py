"""Why a job failed or is pending, and how to fix it. Pure."""

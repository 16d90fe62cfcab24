"""Why a job is pending, with the numbers behind it. Pure."""

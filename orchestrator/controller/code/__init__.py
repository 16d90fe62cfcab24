"""Snapshots of code: taken at submission, stored once for each version, unpacked by the job."""

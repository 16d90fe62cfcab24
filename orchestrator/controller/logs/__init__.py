"""The logs of jobs: where they are, and how they are followed."""

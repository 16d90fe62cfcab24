"""Usage of jobs: hours by period and label, efficiency of one job, GPU samples."""

"""What jobs used: totals by period and label, efficiency, GPU samples."""

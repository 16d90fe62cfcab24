"""Programs that a benchmark runs on a host of the lab."""

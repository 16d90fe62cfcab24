"""Programs that run in the Python of the user, where the packages of trackers are."""

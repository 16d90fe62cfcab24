"""Compare jobs, write the code of a job into a folder, and submit a job like another."""

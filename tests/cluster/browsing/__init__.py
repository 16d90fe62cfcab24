"""Chromium on the login host, the server it looks at, and the jobs that the pages show."""

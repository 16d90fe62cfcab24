"""Text from outside: escaped, written as CSV and JSON, matched by expressions of users."""

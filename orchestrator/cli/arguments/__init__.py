"""What several commands share of their arguments: options, types of values, suggestions."""

"""Commands on other hosts: messages between the two sides, and what a command means there."""

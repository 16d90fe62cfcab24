"""Commands on other hosts: connections over ssh, the agent, and each request exactly once."""

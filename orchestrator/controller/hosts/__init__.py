"""Other hosts: what they have, orchestrator installed there, and the jobs of all of them."""

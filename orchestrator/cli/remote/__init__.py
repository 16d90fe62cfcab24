"""orchestrator --host, --all-hosts, agent, connect and setup: commands on other hosts."""

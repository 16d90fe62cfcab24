"""Metrics for Prometheus: from facts to text. Pure functions."""

from orchestrator.monitoring.records import (
    MAX_JOBS,
    ControllerFacts,
    Facts,
    JobFacts,
    SlurmFacts,
    Throughput,
)

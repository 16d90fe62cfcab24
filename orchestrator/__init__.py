"""Slurm job orchestrator for multi-GPU PyTorch training: the control plane."""

__version__ = "0.1.0"

"""Scaling studies: speedup and efficiency with confidence intervals, and scaling laws."""

from orchestrator.scaling.fits import Estimate, Fit
from orchestrator.scaling.speedup import NORMAL_MAD, Point, Run, Study, study

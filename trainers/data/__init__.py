"""Data sets, and how their samples reach the device."""

from trainers.data.memory import Splits, TensorData
from trainers.data.sources import load, load_on_all_ranks

"""Kills, stops and disconnects everything while numbered updates flow, and checks from outside what arrived."""

from tailrace.testing.torture.report import TortureReport
from tailrace.testing.torture.run import TortureOptions, run_torture

__all__ = ["TortureOptions", "TortureReport", "run_torture"]

"""Runs: their definition, execution and raw results."""

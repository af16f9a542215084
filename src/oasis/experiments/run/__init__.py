"""Runs: what is run, how, and what it leaves behind."""

"""Scenarios: hard streams by name, and the scores of methods on them."""

"""Measures of raw results, and the summaries that keep them."""

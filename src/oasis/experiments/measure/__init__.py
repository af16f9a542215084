"""Measures of raw results, and summaries that store them."""

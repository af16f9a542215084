"""Filters: `where` says which items pass one, `conditions` reads them from a command line.

`fields` tells which fields payloads have.
"""

"""Experiments: run methods over streams, keep what came out, and tell how good it was.

A `definition.Run` is data and its key is its path. `runner` streams it and keeps raw results,
`measures` turns those into summaries, `report` turns summaries into tables, figures and a page.
Each step reads what the one before it wrote, and writes nothing else.
"""

"""Experiments: run methods over streams, keep what came out, and tell how good it was.

A `run.definition.Run` is data and its key is its path. `run` streams it and keeps raw results,
`measure` turns those into summaries, `report` turns summaries into tables, figures and a page.
`grid` carries out many runs; `scenarios` are hard streams by name. Each step reads what the one
before it wrote, and writes nothing else.
"""

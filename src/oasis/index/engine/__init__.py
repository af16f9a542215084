"""The engine of `HammingIndex`: one file each for storing, scanning and answering.

- `arguments`: validation of what callers pass.
- `buffers`, `keys`, `postings`, `compact`, `snapshot`: how codes, ids and lists of rows are stored.
- `scan`: the nearest distinct codes of a query.
- `permits`, `expand`, `top_items`: from the nearest distinct codes to the nearest permitted items.
"""

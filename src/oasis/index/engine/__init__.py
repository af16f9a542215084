"""The engine of `HammingIndex`: one file each for storing, scanning and answering.

- `arguments`: validation of what callers pass.
- `buffers`, `keys`, `postings`, `compact`, `snapshot`: how codes, ids and lists of rows are stored.
- `hamming_scan`: the nearest distinct codes by Hamming distance.
- `projections`, `fast_scan`, `product_scan`, `best_codes`, `label_groups`: the best distinct codes
  by inner product with a real-valued query.
- `permits`, `expand`, `top_items`: from the nearest distinct codes to the nearest permitted items.
"""

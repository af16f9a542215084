"""The engine of `HammingIndex`: one file each for storing, scanning and answering.

- `arguments`: validation of what callers pass.
- `buffers`, `keys`, `postings`, `compact`, `snapshot`: how codes, ids and lists of rows are stored.
- `hamming_scan`: the nearest distinct codes by Hamming distance.
- `projections`, `best_codes`, `sort_keys`: the best distinct codes by inner product with a
  real-valued query, from candidates: `fast_scan` and `packed_codes` by table look-ups,
  `label_groups`, `content_lists`, `group_search` and `group_batch` by label groups,
  `product_scan` by a product.
- `permits`, `expand`, `top_items`: from the nearest distinct codes to the nearest permitted items.
"""

"""What can be asked: `queries` has the methods, `search` turns projections into hits."""

"""How the index finds nearest codes: groups of equal codes, scans, keys, layout in files."""

"""Texts of items, kept word for word: `phrases` reads them, `postings` finds them by words."""

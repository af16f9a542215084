"""Texts of items: kept word for word, and found by their words.

========  =====================================================================================
kept      the texts as they came, and whether a phrase stands in one
words     which items have a word or a line: SQLite's FTS5 and two tables beside it
spelling  words that some items have, for one that none has
========  =====================================================================================
"""

"""How a collection changes.

===========  ==================================================================================
changes      the changes that a user can make: ingest, delete ..., raw items and tables
writer       the order of a change: check, learn, write files, commit, publish
intake       checks of ids, payloads and thumbnails; features of raw items
predictions  labels of items that come without
quality      precision@10 beside chance, before a chunk is learned
===========  ==================================================================================
"""

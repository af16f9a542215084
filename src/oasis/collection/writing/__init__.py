"""How a collection changes.

=======  ==================================================================================
writer   the order of a change: check, learn, write files, commit, publish
intake   checks of ids, payloads and thumbnails; features of raw items
quality  precision@10 beside chance, before a chunk is learned
=======  ==================================================================================
"""

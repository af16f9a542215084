"""The demo: a stream of icons whose categories arrive unannounced, and searches in it.

=========  =============================================================
`glyphs`   icons as raw items, and their extractor
`stream`   the rounds, each followed by searches with held-out icons
`run`      all steps, told in a terminal, into a directory
`page`     the page of the service, recorded in one file
=========  =============================================================
"""

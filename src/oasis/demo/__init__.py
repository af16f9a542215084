"""The icon stream, told as a story: categories arrive unannounced, and search keeps up.

============  ==================================================
`glyphs`      icons as raw items, and their extractor
`story`       what happens: the rounds, then the searches
`terminal`    how it looks in a terminal
`page`        how it looks on a page
`run`         one after the other, into a directory
============  ==================================================
"""

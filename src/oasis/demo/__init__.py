"""The demo: a stream of icons whose categories arrive unannounced, and searches in it.

============  ==================================================
`glyphs`      icons as raw items, and their extractor
`story`       the rounds, then the searches
`terminal`    output in a terminal
`page`        output as an HTML page
`run`         all steps, into a directory
============  ==================================================
"""

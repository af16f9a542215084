"""Filters: which items a search may find.

===========  ====================================================================================
where        what a filter means, and how it is read
tree         a filter as a tree, judged item by item
allow_lists  the keys of all items that pass
names        names of fields and classes that no item has
kinds        comparisons with a kind of value that no item has
conditions   filters and ids as people write them on a command line
fields       which fields payloads have
===========  ====================================================================================
"""

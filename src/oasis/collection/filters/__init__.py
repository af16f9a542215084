"""Filters: which items a search may find.

===========  ====================================================================================
where        what a filter means, and how it becomes SQL
allow_lists  the keys of all items that pass
mistakes     names that no item has, and comparisons with other kinds of values
conditions   filters and ids as people write them on a command line
fields       which fields payloads have
===========  ====================================================================================
"""

"""What can be asked of a collection.

===========  ===================================================================================
lookups      `Lookups`: items, pictures, classes and numbers, without a query
queries      `Queries`: the searches by features, names, stored items and raw items
question     `Question`: what a search asks for, checked
classes      names of classes in queries, and what is near them by its meaning
by_codes     from projections to hits, by the index alone
scored       hits by codes, words, meaning and fingerprints, by one formula
hits         the rows of hits, read from the catalog
===========  ===================================================================================
"""

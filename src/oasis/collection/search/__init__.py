"""What can be asked of a collection.

===========  ===================================================================================
following    `Follower`: the committed state that questions are answered from
lookups      `Lookups`: items, pictures, classes and numbers, without a query
queries      `Queries`: the searches by features, names and stored items
raw_queries  `RawQueries`: those with raw items
question     `Question`: what a search asks for, checked
names        names of classes in queries, and what is near them by its meaning
by_codes     from projections to hits, by the index alone
fused        hits by codes and by the words of the query together
hits         the rows of hits, read from the catalog
===========  ===================================================================================
"""

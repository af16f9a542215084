"""The SQLite file of a collection: connections, tables, and what a commit is.

==============  ================================================================
catalog         connections and transactions
reads           what is read in them
commits         the tables, the head row, rows with their checksums and tallies
item_rows       a learned chunk; items inserted, changed and deleted
class_members   which items have a class, and how many
journal         small chunks learned since the model file was written
setup           what a collection was made with
==============  ================================================================
"""

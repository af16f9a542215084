"""The SQLite file of a collection: connections, tables, and what a commit is.

=======  ======================================================================
catalog  connections, transactions, look-ups
commits  the tables, the head row, a learned chunk, the statements that write it
setup    what a collection was made with
=======  ======================================================================
"""

"""Data into a collection and out of it.

=============  =============================================================
feeding        items of a data file into a collection: batches, resuming, rejects
exporting      codes, ids, labels and payloads for other tools
contact_sheet  a picture of hits
=============  =============================================================
"""

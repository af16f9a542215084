"""Texts of items, kept word for word.

==========  =====================================================================================
phrases     the words of a text, its lines, and whether a phrase stands in it
postings    which items have a word or a line, in the catalog
vocabulary  the postings that searches have read, for the newest commit
fusion      the formula that makes one score of codes and words
shares      which share of the words of a query items have
spelling    known words that are one edit away from unknown ones
==========  =====================================================================================
"""

"""The same thing again: fingerprints of features, by which an exact repeat is found whatever its
code.

============  ===================================================================================
fingerprints  what the fingerprint of an item's features is
lookup        which items have a fingerprint, in memory
============  ===================================================================================
"""

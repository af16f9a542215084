"""Fingerprints of features, which find an item that is asked with its own features.

============  ===================================================================================
fingerprints  what the fingerprint of an item's features is
lookup        which items have a fingerprint, in memory
============  ===================================================================================
"""

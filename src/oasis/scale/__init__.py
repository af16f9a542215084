"""Past one machine: engines that take over where a single process ends.

Nothing is imported here: each part needs an engine of the extra ``scale``.
"""

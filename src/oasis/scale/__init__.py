"""Beyond one machine: search in Milvus, learning and encoding on a Dask cluster.

Nothing is imported here: each part needs packages of the extra ``scale``.
"""

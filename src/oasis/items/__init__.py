"""Items and rejects out of data files: JSONL, CSV, Parquet, npz, npy, or a folder of pictures.

The columns of a table are known by their names: ``file,caption,labels`` and the like, see `Fields`.

Readers stream: memory is one row (Parquet: one batch of rows; a folder: the names in one directory
and its parents) and at most 170 bytes per id, to find duplicates. A row that cannot be used becomes
a `Reject` that says where and why, and reading continues. With ``strict=True`` the whole file is
checked before the first item is returned, and the first reject raises.

Paths of pictures are relative to the folder of the data file. The resolved path (links and ``..``)
must be inside this folder unless ``allow_outside=True``.
"""

from oasis.items.fields import Fields
from oasis.items.item import Item, Reject, RejectsFile
from oasis.items.numpy_files import read_vector
from oasis.items.read import (
    fields_in,
    read_folder,
    read_items,
    read_table,
    settled_fields,
    vector_widths,
)

__all__ = [
    "Fields",
    "Item",
    "Reject",
    "RejectsFile",
    "fields_in",
    "read_folder",
    "read_items",
    "read_table",
    "read_vector",
    "settled_fields",
    "vector_widths",
]

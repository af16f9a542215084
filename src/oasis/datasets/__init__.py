"""Data sets: named modalities, label sets and class names.

``load(name)`` loads a data set by name; if a file is missing, the error says which and where to get
it. `oasis.datasets.npz` describes a layout for your own data.

============================  ====================================================================
dataset                       `Dataset`: modalities, labels, class names, provenance
registry                      every data set by name; where files are looked for
npz, own                      your own data: the ``.npz`` layout; ``.mat``, Parquet and pictures
mat, matfile                  the paper's data; a reader of ``.mat`` files
icons, coco, texts            Font Awesome icons; facts about coco79; captions and texts of items
synthetic                     generated data, in the shape of the paper's or of coco79
============================  ====================================================================
"""

from oasis.datasets.dataset import Dataset, RowSource, Source
from oasis.datasets.registry import check, load, names

__all__ = ["Dataset", "RowSource", "Source", "check", "load", "names"]

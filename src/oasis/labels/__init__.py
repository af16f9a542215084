"""Vectors of class names.

`space` has `LabelSpace`, which grows as classes arrive and computes the vectors of samples;
`sources` has where word vectors come from (a mapping, WordLlama, a file); `files` reads word2vec
and GloVe files.
"""

from oasis.labels.space import DEFAULT_AXES, LabelSpace

__all__ = ["DEFAULT_AXES", "LabelSpace"]

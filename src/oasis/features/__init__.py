"""Raw text and pictures turned into vectors.

============  =====================================================================
`extractor`   which field of an item feeds which modality, through which embedder
`batches`     pictures of a batch decoded ahead, features of a batch in one modality
`embedders`   the protocol of an embedder; any callable as one, directly or by its name
`text`        words hashed into a bag of words (CSR), no vocabulary to keep
`words`       the words of a text: folded, without stop words, stemmed
`meaning`     the mean word vector of a text
`looks`       the meaning of a picture without a text, and the names of what is surely in it
`image`       pictures through EfficientNet-Lite0 (extra ``images``)
`gradients`   pictures as histograms of oriented gradients, for drawings
`pictures`    pictures decoded, from files, bytes, PIL images and arrays
`thumbnail`   small pictures to be shown
============  =====================================================================

Below `image`: `weights`, the file of its tensors.
"""

from oasis.features.looks import picture_meaning, picture_tags

__all__ = ["picture_meaning", "picture_tags"]

"""Raw text and pictures turned into vectors.

============  =====================================================================
`text`        words hashed into a bag of words (CSR), no vocabulary to keep
`image`       pictures through EfficientNet-Lite0 (extra ``images``)
`gradients`   pictures by their oriented gradients, for drawings
`extractor`   which field of an item feeds which modality, through which embedder
============  =====================================================================

Below `image`: `efficientnet` (the net as an ONNX graph), `weights` (the file of tensors it is made
from) and `cache` (the folder where the graph is kept).
"""

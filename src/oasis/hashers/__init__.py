"""What a hasher is: its protocol, a base class to write one on, and the checks of a chunk.

==========  ====================================================================================
protocol    `OnlineHasher`: the methods that users of a hasher rely on; scikit-learn's conventions
learner     `Learner`: a base class that keeps everything learned in one state
chunk       `check_chunk` and its parts: X and y in all their forms, checked and in one form
modalities  `Modalities`: several modalities of the same samples, indexed by rows
checks      conformance checks for a hasher of your own
examples    the chunks that they use: seeded ones, and those that every hasher refuses
==========  ====================================================================================
"""

from __future__ import annotations

from oasis.hashers.chunk import Chunk, check_chunk, check_features, check_finite
from oasis.hashers.learner import Learner
from oasis.hashers.modalities import Modalities
from oasis.hashers.protocol import OnlineHasher

__all__ = [
    "Chunk",
    "Learner",
    "Modalities",
    "OnlineHasher",
    "check_chunk",
    "check_features",
    "check_finite",
]

"""The model: `OASIS`, the published method, and what both are made of.

==============  ================================================================================
oasis           `OASIS`: its parameters and one round of it
codeword_state  `CodewordState`: what `OASIS` remembers, and the hash functions that follow
paper           `PublishedOASIS`, the method as published; formulas in docs/formulas.md
base            what both share: parameters, a state, saving and loading
round           a round over rows in memory or on a cluster
updates         the published block updates, one function for each equation
codewords       `grown_codewords`: the codeword of each class; `sample_codes`: B = sign(L C)
bit_shares      how many bits are of which kind by default
content         bits that say what the labels do not
coding          how `OASIS` codes queries and items from predicted and known labels
weighing        how much label bits and content bits of a query count
readout         `Codebook`: sums over stored codes; its `readout` projects labels into code space
hash_functions  `LabelMap`: labels predicted from features
calibration     how sure predicted labels are, from samples predicted before they were learned
strangeness     how unlike the samples a query is
ridge, gram     streaming ridge regression, and the sum X'X that it keeps
ridge_round     one round of it
leave_one_out   how strong the ridge is, chosen on the first chunk
factor          the Cholesky factor of that sum
threads         how many threads BLAS uses
file            the file of a model
codeword_file   what it says of a `CodewordState`
==============  ================================================================================
"""

from oasis.model.base import AnyModel
from oasis.model.oasis import OASIS
from oasis.model.paper import PublishedOASIS

__all__ = ["OASIS", "AnyModel", "PublishedOASIS"]

"""The model: `OASIS`, the published method, and what both are made of.

==============  ================================================================================
oasis           `OASIS`: its parameters and one round of it
state           `CodewordState`: what `OASIS` remembers, and the functions that follow
ridge           1. streaming ridge regression onto labels and content, and one round of it
codewords       2. `grown_codewords`: the codeword of each class; `sample_codes`: B = sign(L C)
content         2. bits that say what the labels do not
readout         3. `Codebook`: sums over stored codes; its `readout` projects labels into code space
calibration     4. how sure predicted labels are, from samples predicted before they were learned
query           queries and unlabelled items, from what is predicted of them
hash_functions  `LinearMap`; `LabelMap`: labels predicted from features
paper           `PublishedOASIS`, the method as published; formulas in docs/formulas.md
updates         the published block updates, one function for each equation
base, file      what both share: parameters, a state; the file of a state
round           a round over rows in memory or on a cluster
gram            the sum X'X that it keeps, its products and its Cholesky factor
threads         how many threads BLAS uses
==============  ================================================================================
"""

from oasis.model.base import AnyModel
from oasis.model.oasis import OASIS
from oasis.model.paper import PublishedOASIS

__all__ = ["OASIS", "AnyModel", "PublishedOASIS"]

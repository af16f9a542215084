"""Code that the baselines share.

=============  ===================================================================================
batch          methods that keep everything seen and retrain on it
kernel         kernel features of a sample: similarities to anchors
classes        labels as a 0/1 matrix L; products with S = 2 L L' - 1 1'
linear         base of online methods with linear hash functions; their sums X'X and B'X
class_codes    codes of classes, and queries weighted by modality
solvers        ridge systems, singular systems, Sylvester's equation
signs          signs, their distance from projections, random rotations
components     principal components of several modalities together
partial_views  SAPMH's encoding of samples with missing modalities
parameters     checks of constructor arguments
=============  ===================================================================================
"""

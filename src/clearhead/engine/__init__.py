"""One recorded forward pass, and the gradients and relevance computed from it.

Shape letters: the suffix of a tensor's name lists its axes, so `attention_BHTS` has batch, head, query and key.

======  ===============================================================================
letter  axis
======  ===============================================================================
B       batch: the samples that are explained together
H       attention head
T       token, or the query of an attention map; patches of an image are tokens
S       token as the key of an attention map
D       hidden feature; within an attention head, one of its channels
C       class; before P and Q, colour channel
L       layer or block, counted from the input
P, Q    pixel row and pixel column
V       entry of the vocabulary
N       perturbed inputs or points that run through the network together
======  ===============================================================================

Folders above the engine add to these:

======  ===============================================================================
letter  axis
======  ===============================================================================
E       example of a data set or of a request
U       feature that is removed as a whole: sub-word, word, sentence, patch, superpixel
X       element of an input that belongs to a feature: token or flattened pixel
O       order in which features are removed
R       row of perturbed inputs; in `evaluation`, resample
K       step of a curve
N       in `evaluation`, record
A       annotated element, such as a token of a human rationale
G       group of records that are resampled together
======  ===============================================================================
"""

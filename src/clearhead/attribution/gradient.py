"""Methods over the gradient at the input: word embeddings, or pixels."""

from torch import Tensor

from clearhead.attribution.method import Attribution, always, method
from clearhead.engine.backward import GRADIENT
from clearhead.engine.trace import Trace


def attribute_norm(trace: Trace, gradient: Tensor) -> Attribution:
    """Return the L2 norm per token; for images over each patch's pixels, with the norm over channels as pixel map."""
    if trace.is_image:
        return _attribute_pixel_norm(trace, gradient.square().sum(1))
    return Attribution(gradient.norm(dim=-1))


def _attribute_pixel_norm(trace: Trace, squares_BPQ: Tensor) -> Attribution:
    # Squares are summed over a patch before the root, so that its score is a norm too.
    return Attribution(trace.patches(squares_BPQ).sqrt(), pixels_BPQ=squares_BPQ.sqrt())


def attribute_sum(trace: Trace, product: Tensor) -> Attribution:
    """Return the sum per token; for images over each patch's pixels and channels."""
    if trace.is_image:
        return attribute_pixels(trace, product.sum(1))
    return Attribution(product.sum(-1))


def attribute_pixels(trace: Trace, pixels_BPQ: Tensor) -> Attribution:
    """Return the sum of a pixel map over each patch, and the map itself."""
    return Attribution(trace.patches(pixels_BPQ), pixels_BPQ=pixels_BPQ)


@method(
    paper="Simonyan et al. 2014; decoded paper's Simple",
    signed=False,
    class_specific=True,
    needs=("gradients",),
    blockwise=always,
)
def gradient(trace: Trace) -> Attribution:
    """L2 norm of the gradient at the word embeddings (images: at the pixels)."""
    return attribute_norm(trace, trace.leaf_gradient)


@method(
    paper="Shrikumar et al. 2016; decoded paper's GradxAct",
    signed=True,
    class_specific=True,
    needs=("gradients",),
    blockwise=always,
)
def gradient_x_input(trace: Trace, *, backward: str = GRADIENT) -> Attribution:
    """Gradient × word embedding, summed over features (images: × pixel).

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    return attribute_sum(trace, trace.coefficients(backward).leaf * trace.leaf)

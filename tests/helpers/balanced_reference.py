"""AttnLRP and CP-LRP by plain autograd: norms detached, activations as ratios, products halved or one side held.

A transcription of the rules that shares nothing with the engine: it rewrites each operation so that its ordinary
gradient is the wanted coefficient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def halved(left: Tensor, right: Tensor, product) -> Tensor:
    """A product of two activations whose gradient gives half to each factor."""
    return 0.5 * (product(left.detach(), right) + product(left, right.detach()))


def ratio(x: Tensor, out: Tensor, slope_at_zero: float) -> Tensor:
    """φ(x) = x · (φ(x)/x) with the ratio held constant."""
    with torch.no_grad():
        factor = torch.where(x == 0, torch.full_like(x, slope_at_zero), out / x)
    return x * factor


def is_activation(value) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


SLOPES = {"gelu": 0.5, "silu": 0.5, "tanh": 1.0, "relu": 0.0}
"""φ′(0) of activation functions."""
REWRITTEN = ("topk", "gather", "sigmoid", "layer_norm")
HELD = ("rsqrt", "sqrt", "std", "norm", "linalg_norm", "linalg_vector_norm")


def _is_inverse_root(name, args) -> bool:
    return name == "pow" and is_activation(args[0]) and args[1] == -0.5


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    """A norm over the last axis with its deviation held."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt().detach()
    out = centred / deviation
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


class Transcription(TorchFunctionMode):
    """Runs a network so that its gradients are the coefficients of `rule`: "attn-lrp", "balanced" or "gradient".

    `maps` are the attention maps and `heads` the outputs of their heads, map × values, in the order of the blocks.
    `leaf` is what was looked up in the embedding table `words`.
    """

    def __init__(self, rule: str, words: Tensor | None = None) -> None:
        super().__init__()
        self.rule = rule
        self.words = words
        self.leaf: Tensor | None = None
        self.activated: list[Tensor] = []
        self.maps: list[Tensor] = []
        self.heads: list[Tensor] = []
        self.casts: list[Tensor] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "").strip("_")
        name = name[1:] if name in ("rmul", "imul") else name
        out = self.rewrite(name, function, args, kwargs or {})
        # A softmax of constants, such as the weights of chosen experts, is one, too.
        if name == "softmax" and is_activation(out):
            self.maps.append(out)
        if name == "type_as" and self.is_map(args[0]):
            self.casts.append(out)
        if self.weighs_values(name, args):
            self.heads.append(out)
        return out

    def weighs_values(self, name, args) -> bool:
        """Whether an operation is the product of an attention map, perhaps reshaped, and the values."""
        if name not in ("matmul", "bmm"):
            return False
        return self.is_map(args[0])

    def is_map(self, tensor) -> bool:
        return any(tensor.data_ptr() == attention.data_ptr() for attention in (*self.maps, *self.casts))

    def rewrite(self, name, function, args, kwargs):
        if name in ("softmax", "embedding"):
            return getattr(self, name)(function, args, kwargs)
        if self.rule == "gradient":
            return function(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            raise AssertionError("run the transcription with eager attention")
        if name in HELD or _is_inverse_root(name, args):
            return function(*args, **kwargs).detach()
        if name in REWRITTEN:
            return getattr(self, name)(function, args, kwargs)
        if name in SLOPES:
            return self.activation(name, function, args, kwargs)
        return self.multiply(name, function, args, kwargs)

    def embedding(self, function, args, kwargs):
        out = function(*args, **kwargs)
        if args[1] is not self.words:
            return out
        self.leaf = out.detach().requires_grad_()
        return self.leaf

    def topk(self, function, args, kwargs):
        """Hold the weights of the chosen experts."""
        values, indices = function(*args, **kwargs)
        return values.detach(), indices

    def gather(self, function, args, kwargs):
        """Hold the weights of experts that are chosen from probabilities."""
        out = function(*args, **kwargs)
        is_gate = any(args[0] is tensor for tensor in self.activated)
        return out.detach() if is_gate or self.is_map(args[0]) else out

    def sigmoid(self, function, args, kwargs):
        """A gate, which has no ratio σ(x)/x."""
        self.activated.append(function(*args, **kwargs))
        return self.activated[-1]

    def activation(self, name, function, args, kwargs):
        out = ratio(args[0], function(*args, **kwargs), SLOPES[name])
        self.activated.append(out)
        return out

    def softmax(self, function, args, kwargs):
        out = function(*args, **self._in_full(args, kwargs))
        # The coefficient at a map can be read, but goes no further.
        return out.detach().requires_grad_() if self.rule == "balanced" and is_activation(out) else out

    def multiply(self, name, function, args, kwargs):
        """Any other operation; products of two activations are rewritten."""
        if self.rule == "balanced" and self.weighs_values(name, args):
            return function(*args, **kwargs)
        if sum(map(is_activation, args)) == 2:
            if name in ("matmul", "bmm", "einsum"):
                return self.product(function, args, kwargs)
            if name in ("mul", "multiply"):
                return self.gate(function, *args)
        return function(*args, **kwargs)

    @staticmethod
    def _in_full(args, kwargs):
        """Some networks compute the softmax in float32 even in float64."""
        return {**kwargs, "dtype": args[0].dtype} if "dtype" in kwargs else kwargs

    def layer_norm(self, function, args, kwargs):
        return layer_norm(*args, **kwargs)

    def product(self, function, args, kwargs):
        if function.__name__ == "einsum":
            return halved(args[1], args[2], lambda a, b: function(args[0], a, b))
        return halved(args[0], args[1], lambda a, b: function(a, b, **kwargs))

    def gate(self, function, left, right):
        if self.rule == "balanced":
            if any(left is tensor for tensor in self.activated):
                return function(left.detach(), right)
            if any(right is tensor for tensor in self.activated):
                return function(left, right.detach())
        return halved(left, right, function)


@dataclass
class Reference:
    """Activations of one pass under a transcription, each with its coefficient."""

    leaf: tuple[Tensor, Tensor]
    hidden_states: list[tuple[Tensor, Tensor]]
    maps: list[tuple[Tensor, Tensor]]
    heads: list[tuple[Tensor, Tensor]]
    modules: dict[str, tuple[Tensor, Tensor]]


def first_logit(output) -> Tensor:
    return output.logits[:, 0].sum()


def transcribe(network, batch, rule: str, blocks=(), modules=(), score=first_logit) -> Reference:
    """Run a network with eager attention under a rule; `blocks` and `modules` are names of modules.

    `score` computes what is explained from the output, summed over the samples.
    """
    plain = network.requires_grad_(False)
    inputs = dict(batch)
    if "pixel_values" in batch:
        mode = Transcription(rule)
        mode.leaf = inputs["pixel_values"] = batch["pixel_values"].detach().clone().requires_grad_()
    else:
        mode = Transcription(rule, plain.get_input_embeddings().weight)
    if rule != "gradient":
        wrap_activations(plain, mode)
    outputs: dict[str, Tensor] = {}
    for name in (*blocks, *modules):
        plain.get_submodule(name).register_forward_hook(_keep(outputs, name))
    if blocks:
        plain.get_submodule(blocks[0]).register_forward_pre_hook(_keep_input(outputs), with_kwargs=True)
    with mode:
        output = plain(**inputs)
    hidden = [outputs[name] for name in ("input", *blocks)] if blocks else []
    others = [outputs[name] for name in modules]
    tensors = [mode.leaf, *hidden, *mode.maps, *mode.heads, *others]
    coefficients = torch.autograd.grad(score(output), tensors, allow_unused=True)
    pairs = iter([(tensor.detach(), _or_zeros(c, tensor)) for tensor, c in zip(tensors, coefficients, strict=True)])
    return Reference(
        leaf=next(pairs),
        hidden_states=[next(pairs) for _ in hidden],
        maps=[next(pairs) for _ in mode.maps],
        heads=[next(pairs) for _ in mode.heads],
        modules={name: next(pairs) for name in modules},
    )


def _or_zeros(coefficient, tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if coefficient is None else coefficient


def _keep(outputs, name):
    def hook(module, args, out):
        outputs[name] = out if isinstance(out, Tensor) else out[0]

    return hook


def _keep_input(outputs):
    def hook(module, args, kwargs):
        outputs["input"] = args[0] if args else kwargs["hidden_states"]

    return hook


def wrap_activations(network: torch.nn.Module, mode: Transcription) -> None:
    """Treat activation modules as one function, however they are written."""
    for module in network.modules():
        if type(module).__module__ == "transformers.activations":
            module.forward = _as_ratio(module.forward, mode)


def _as_ratio(forward, mode: Transcription):
    def wrapped(x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            value = x.detach()
            nonzero = torch.where(value == 0, torch.full_like(value, 1e-30), value)
            factor = forward(nonzero) / nonzero
        out = x * factor
        mode.activated.append(out)
        return out

    return wrapped

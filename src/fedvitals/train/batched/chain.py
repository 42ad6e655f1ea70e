"""Chains of known layers, read from a module and trained by hand: forward, loss, backward."""

from __future__ import annotations

from torch import Tensor, nn

from fedvitals.train.batched.layers import (
    BatchedLayer,
    Dense,
    Flattened,
    HyperbolicTangent,
    Rectified,
    Weightless,
    cross_entropy,
)
from fedvitals.train.batched.pictures import Convolved, PatchedAndPooled, Pooled
from fedvitals.train.flat import FlatModel


class Chain:
    """Layers one after the other, each with its backward by hand."""

    how = "hand-batched layers"

    def __init__(self, layers: list[BatchedLayer]) -> None:
        self._layers = layers
        self._bound: tuple[int, int, int] = (0, 0, 0)
        self._first_with_weights = next(i for i, one in enumerate(layers) if not isinstance(one, Weightless))

    def prepared(self, x: Tensor) -> Tensor:
        first = self._layers[0]
        return first.prepared(x) if isinstance(first, PatchedAndPooled) else x

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        self._bind(weights, gradient)
        for layer in self._layers:
            x = layer.forward(x)
        losses, passed = cross_entropy(x, y, share)
        for index in range(len(self._layers) - 1, self._first_with_weights - 1, -1):
            wants_input = index > self._first_with_weights
            below = self._layers[index].backward(passed, wants_input=wants_input)
            self._layers[index].forget()  # at once: what is freed early can be used again
            if below is None:
                break
            passed = below
        for layer in self._layers[: self._first_with_weights]:
            layer.forget()
        return losses

    def _bind(self, weights: Tensor, gradient: Tensor) -> None:
        """Cut the matrices into layers when they are others than at the last step, which is seldom."""
        bound = (weights.data_ptr(), gradient.data_ptr(), weights.shape[0])
        if bound != self._bound:
            for layer in self._layers:
                layer.bind(weights, gradient)
            self._bound = bound


def chain_of(model: FlatModel) -> Chain | None:
    """None when the module is not a plain chain of layers known here."""
    module = model.module
    if type(module) is not nn.Sequential or model.trainable is not None or model.hooked:
        return None
    where = {layer.name: part for layer, part in zip(model.layers, model.slices, strict=True)}
    named = list(module._modules.items())  # not named_children(): that gives a module in two places only once
    layers: list[BatchedLayer | None] = []
    if len(named) > 1 and _neighbours_pooled(named[0][1], named[1][1]):
        layers.append(_weighted(PatchedAndPooled, *named[0], where))
        named = named[2:]
    layers += [_layer(name, part, where) for name, part in named]
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers) or all(isinstance(layer, Weightless) for layer in known):
        return None
    return Chain(known)


def _layer(name: str, part: nn.Module | None, where: dict[str, slice]) -> BatchedLayer | None:
    if type(part) is nn.Linear:
        return _weighted(Dense, name, part, where)
    if type(part) is nn.Conv2d and part.groups == 1 and part.padding_mode == "zeros" and part.padding != "same":
        return _weighted(Convolved, name, part, where)
    if type(part) is nn.MaxPool2d and not part.return_indices:
        return Pooled(part)
    if type(part) is nn.ReLU:
        return Rectified()
    if type(part) is nn.Tanh:
        return HyperbolicTangent()
    if type(part) is nn.Flatten and part.start_dim == 1 and part.end_dim == -1:
        return Flattened()
    return None


def _weighted(
    kind: type[Dense] | type[Convolved] | type[PatchedAndPooled],
    name: str,
    part: nn.Module | None,
    where: dict[str, slice],
) -> BatchedLayer | None:
    """None when a weight or bias is tied: it lies under the name of its first place, and autograd knows how to add."""
    if part is None or not all(f"{name}.{own}" in where for own, _ in part.named_parameters()):
        return None
    return kind(part, where[f"{name}.weight"], where.get(f"{name}.bias"))  # type: ignore[arg-type]  # they belong together


def _neighbours_pooled(first: nn.Module | None, second: nn.Module | None) -> bool:
    """A convolution of one channel, pixel by pixel, and the largest of each four neighbours after it. From three
    channels on, oneDNN's convolution is as fast as the product."""
    if type(first) is not nn.Conv2d or type(second) is not nn.MaxPool2d:
        return False
    pooling = (second.kernel_size, second.stride, second.padding, second.dilation)
    square = len(set(first.kernel_size)) == 1 and len(set(first.padding)) == 1
    return (
        pooling in ((2, 2, 0, 1), ((2, 2), (2, 2), 0, 1))
        and not (second.ceil_mode or second.return_indices)
        and first.in_channels == 1
        and (first.stride, first.dilation, first.groups, first.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
        and isinstance(first.padding, tuple)
        and square
    )

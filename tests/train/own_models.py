"""Models as users write them, named by jobs as `own_models:function`: plain, awkward, and such as cannot be batched."""

from __future__ import annotations

import os
import signal
from functools import cache
from multiprocessing import parent_process

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]


class Plain(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, 8)
        self.last = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(F.gelu(self.first(x)))
        return scores


def plain(shape: Shape, classes: int) -> nn.Module:
    return Plain(shape[0], classes)


def one_relu_twice(shape: Shape, classes: int) -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(shape[0], 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, classes))


def one_layer_twice(shape: Shape, classes: int) -> nn.Module:
    again = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), again, nn.Tanh(), again, nn.Linear(8, classes))


def tied_bias(shape: Shape, classes: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, classes))
    model[2].bias = model[0].bias
    return model


def no_bias(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8, bias=False), nn.Tanh(), nn.Linear(8, classes, bias=False))


@cache
def kept(shape: Shape, classes: int) -> nn.Module:
    """The same module at each call."""
    return plain(shape, classes)


class Uncopied(Plain):
    def __deepcopy__(self, memo: dict[int, object]) -> nn.Module:
        raise TypeError("not to be copied")


def uncopied(shape: Shape, classes: int) -> nn.Module:
    return Uncopied(shape[0], classes)


@cache
def kept_uncopied(shape: Shape, classes: int) -> nn.Module:
    """The same again, where no copy helps."""
    return uncopied(shape, classes)


class Halved(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        x = input
        for layer in self:
            x = layer(x)
        return x * 0.5


def own_sequential(shape: Shape, classes: int) -> nn.Module:
    return Halved(nn.Linear(shape[0], classes))


def hooked(shape: Shape, classes: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, classes))
    model[0].register_forward_hook(lambda module, inputs, output: output * 2.0)
    return model


def frozen_first(shape: Shape, classes: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, classes))
    model[0].weight.requires_grad_(False)
    return model


class Unused(Plain):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.spare = nn.Linear(3, 3)


def unused(shape: Shape, classes: int) -> nn.Module:
    return Unused(shape[0], classes)


class Masked(Plain):
    """Integer and bool buffers that nobody writes to."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("keep", torch.arange(inputs) % 3 > 0)
        self.register_buffer("order", torch.arange(inputs).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        order, keep = self.get_buffer("order"), self.get_buffer("keep")
        return super().forward(x[:, order] * keep)


def masked(shape: Shape, classes: int) -> nn.Module:
    return Masked(shape[0], classes)


class Running(Plain):
    """A mean that the forward pass keeps up: written to, or assigned anew; and a count of its calls."""

    def __init__(self, inputs: int, classes: int, *, anew: bool) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("calls", torch.tensor(0))
        self._anew = anew

    def forward(self, x: Tensor) -> Tensor:
        mean = self.get_buffer("mean")
        if self.training and self._anew:
            self.mean = 0.9 * mean + 0.1 * x.mean(0)
            self.calls = self.get_buffer("calls") + 1
        elif self.training:
            mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.get_buffer("calls").add_(1)
        return super().forward(x - self.get_buffer("mean"))


def running_written(shape: Shape, classes: int) -> nn.Module:
    return Running(shape[0], classes, anew=False)


def running_anew(shape: Shape, classes: int) -> nn.Module:
    return Running(shape[0], classes, anew=True)


class Stumbling(Running):
    """Raises at rows that hold a NaN, after it has assigned its buffers."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes, anew=True)

    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        if bool(x.isnan().any()):
            raise ArithmeticError("a row holds NaN")
        return scores


def stumbling(shape: Shape, classes: int) -> nn.Module:
    return Stumbling(shape[0], classes)


class Noisy(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x) if self.training else x)


def noisy(shape: Shape, classes: int) -> nn.Module:
    return Noisy(shape[0], classes)


def shared_memory(shape: Shape, classes: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(shape[0], 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, classes))
    model[3].weight = nn.Parameter(model.get_parameter("1.weight").data)
    return model


def double(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, shape), nn.Linear(shape[0], classes)).double()


def untrainable(shape: Shape, classes: int) -> nn.Module:
    return nn.Linear(shape[0], classes).requires_grad_(False)


def linear_over_time(shape: Shape, classes: int) -> nn.Module:
    """A Linear on rows of [time, channels]: a known layer, on more axes than its batched version has."""
    return nn.Sequential(nn.Linear(shape[1], 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * shape[0], classes))


def smooth_pictures(shape: Shape, classes: int) -> nn.Module:
    """A convolution without kinks: no ReLU and no maximum, at which a rounding error decides."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * (height // 2) * (width // 2), classes),
    )


class Refusing(Plain):
    """Raises at rows that hold a NaN, in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and bool(x.isnan().any()):
            raise ArithmeticError("a row holds NaN")
        return super().forward(x)


def refusing(shape: Shape, classes: int) -> nn.Module:
    return Refusing(shape[0], classes)


class Failing(Plain):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ArithmeticError("cannot be trained")
        return super().forward(x)


def failing(shape: Shape, classes: int) -> nn.Module:
    return Failing(shape[0], classes)


class Dying(Plain):
    """Kills its worker process once: the first that finds the file named by DYING_FLAG and takes it away."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and parent_process() is not None and _took(os.environ.get("DYING_FLAG", "")):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def dying(shape: Shape, classes: int) -> nn.Module:
    return Dying(shape[0], classes)


class Stuck(Plain):
    """In a worker, writes the worker's number into the pipe named by STUCK_PIPE and then waits to be killed."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and parent_process() is not None:
            with open(os.environ["STUCK_PIPE"], "w", encoding="ascii") as pipe:
                pipe.write(f"{os.getpid()}\n")
            while True:
                signal.pause()
        return super().forward(x)


def stuck(shape: Shape, classes: int) -> nn.Module:
    return Stuck(shape[0], classes)


def _took(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def writes_in_place(shape: Shape, classes: int) -> nn.Module:
    """Every second layer overwrites what it gets, as layers may that say so."""
    hidden = [part for _ in range(4) for part in (nn.Linear(8, 8), nn.ReLU(inplace=True))]
    return nn.Sequential(nn.Linear(shape[0], 8), *hidden, nn.Linear(8, classes))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2.0)


def overwrites_unsaid(shape: Shape, classes: int) -> nn.Module:
    """Layers that overwrite what they get and do not say so."""
    return nn.Sequential(nn.Linear(shape[0], classes), *(Doubled() for _ in range(8)))


class Nested(nn.Module):
    """The chain is a part of the model, and has chains within."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        pair = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)]
        self.body = nn.Sequential(nn.Linear(inputs, 8), *pair)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def nested(shape: Shape, classes: int) -> nn.Module:
    return Nested(shape[0], classes)


class Centred(nn.Module):
    """Its answer depends on a buffer that it changes: computed again, it must start from the old one."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - self.mean
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x.mean(0), alpha=0.5)
        return centred


def centred(shape: Shape, classes: int) -> nn.Module:
    hidden = [part for _ in range(4) for part in (nn.Linear(8, 8), Centred(), nn.Tanh())]
    return nn.Sequential(nn.Linear(shape[0], 8), *hidden, nn.Linear(8, classes))


def scripted(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Linear(shape[0], 8)), nn.ReLU(), nn.Linear(8, classes))

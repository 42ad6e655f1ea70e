"""Which models the compiled trainer takes, and what it is told of them."""

from __future__ import annotations

import pytest
from torch import nn

from fedvitals.train.compiled import library as library_module
from fedvitals.train.compiled import program_of
from fedvitals.train.compiled.library import DENSE, PICTURE
from fedvitals.train.flat import FlatModel

PICTURES = (2, 8, 8)


def test_a_chain_is_read_layer_by_layer() -> None:
    """With what follows a layer as part of it, and where its weights lie in a flat row."""
    model = FlatModel(
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5, bias=False)
        )
    )
    program = program_of(model, PICTURES)
    assert program is not None
    first, second = program.layers
    assert (first.kind, first.inputs, first.outputs, first.kernel, first.pad) == (PICTURE, 2, 4, 3, 1)
    assert (first.height, first.width, first.relu, first.pool) == (8, 8, True, True)
    assert (second.kind, second.inputs, second.outputs, second.relu, second.bias) == (DENSE, 64, 5, False, -1)
    assert (first.weight, first.bias, second.weight) == (0, 72, 76)
    assert (program.size, program.classes, program.multiplications) == (76 + 320, 5, 2 * 4 * 9 * 64 + 320)


def _tied() -> nn.Module:
    one = nn.Linear(128, 128)
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), one, nn.Linear(128, 3))


def _hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    model[1].register_forward_hook(lambda *_: None)
    return model


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.Linear(8, 3))
    model[1].weight.requires_grad_(False)
    return model


class _Own(nn.Sequential):
    """May do anything in its forward."""


REFUSED = {
    "not a chain": lambda: nn.Linear(128, 3),
    "a class of one's own": lambda: _Own(nn.Flatten(), nn.Linear(128, 3)),
    "a layer that is not known": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.GELU(), nn.Linear(8, 3)),
    "normalisation": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)),
    "strides": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 3)),
    "kernels that are not square": lambda: nn.Sequential(nn.Conv2d(2, 4, (3, 1)), nn.Flatten(), nn.Linear(192, 3)),
    "padding by name": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.Flatten(), nn.Linear(256, 3)),
    "padding by reflection": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(256, 3)
    ),
    "groups": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(144, 3)),
    "other pooling": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(16, 3)),
    "pooling of rows": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 3)),
    "pooling twice": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    ),
    "scores that are rectified": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 3), nn.ReLU()),
    "rows that are rectified": lambda: nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)),
    "dense layers over channels": lambda: nn.Sequential(nn.Linear(8, 3)),
    "more weights than a cache has room for": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 3)
    ),
    "tied weights": _tied,
    "a hook": _hooked,
    "a frozen layer": _frozen,
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_left_to_torch(what: str) -> None:
    """Rather than trained as if it were something known."""
    assert program_of(FlatModel(REFUSED[what]()), PICTURES) is None


def test_a_file_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that is not there: torch does the work."""
    library_module.library.cache_clear()
    monkeypatch.setattr(library_module, "VERSION", -1)
    assert library_module.library() is None
    library_module.library.cache_clear()
    monkeypatch.setattr(library_module, "LIBRARY", library_module.LIBRARY.with_name("nowhere.so"))
    assert library_module.library() is None
    monkeypatch.undo()
    library_module.library.cache_clear()

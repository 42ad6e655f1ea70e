"""FedDebug's vote: who leaves dark the neurons that all others light up.

Gill, Anwar, Gulzar: "FedDebug: Systematic Debugging for Federated Learning Applications", ICSE 2023. Random inputs go
through every client's model; for each input the client is named without whom the others have most active neurons in
common, again without it for the next one, as often as there are bad clients. Leaving one out and counting what the rest
share is the same as counting, for each client, the neurons that every other one turns on and it does not: that is what
is done here, in time linear in the clients. A neuron is an output of a dense or convolutional layer (here a GRU's last
state, too) and is on above 0.003, as in the authors' artifact. The number of bad clients is given; where there are none
it is asked for one, since it has no way to say "healthy".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedvitals.bench.faults.detectors.protocol import Sent, Votes
from fedvitals.randomness import torch_seed
from fedvitals.train.engine import Training
from fedvitals.train.federation import Federation
from fedvitals.train.flat import FlatModel
from fedvitals.train.models import build_model

THRESHOLD = 0.003
INPUTS = 100  # the authors take 10, for models of a thousand times as many neurons
NEURONS = (nn.Linear, nn.Conv2d, nn.GRU)


class FedDebug:
    """Votes over random inputs, over rounds."""

    name = "FedDebug"

    def __init__(self, training: Training, *, clean: bool) -> None:
        self._model = FlatModel(build_model(training.job, training.federation))
        self._inputs = random_inputs(training.federation, training.job.seed)
        self._least = 1 if clean else 0
        self._votes = Votes()

    def named(self, sent: Sent) -> frozenset[str]:
        wanted = min(max(sent.bad, self._least), len(sent.clients) - 1)
        if wanted > 0:
            rows = lone_dissenters(self._active(sent), wanted)
            self._votes.count(sent.clients, [sent.clients[row] for row in rows])
        return self._votes.verdict(max(sent.bad_so_far, self._least))

    @torch.no_grad()
    def _active(self, sent: Sent) -> Tensor:
        """[clients, inputs, neurons]: which neurons each client's model turns on."""
        found = []
        self._model.module.eval()
        with outputs(self._model.module) as seen:
            for update in sent.updates:
                self._model.weights.copy_(sent.weights + update)
                self._model.module(self._inputs)
                found.append(torch.cat(seen, dim=1) > THRESHOLD)
                seen.clear()
        return torch.stack(found)


def lone_dissenters(active: Tensor, wanted: int) -> list[int]:
    """The rows that most inputs name, when each input names up to `wanted` of them."""
    votes = torch.zeros(len(active))
    for number in range(active.shape[1]):
        votes[_of_one_input(active[:, number], wanted)] += 1
    order = votes.argsort(descending=True, stable=True)[:wanted]
    return [row for row in order.tolist() if votes[row] > 0]


def _of_one_input(active: Tensor, wanted: int) -> list[int]:
    left = list(range(len(active)))
    named = []
    for _ in range(wanted):
        on = active[left]
        alone_off = on.sum(dim=0) == len(left) - 1
        dark = (~on[:, alone_off]).sum(dim=1)
        if not bool(dark.any()):
            break  # all leave-one-out sets share equally much: this input tells nothing more
        named.append(left.pop(int(dark.argmax())))
    return named


def random_inputs(federation: Federation, seed: int) -> Tensor:
    """Rows of noise in the shape of the data: normal, or any tokens."""
    generator = torch.Generator().manual_seed(torch_seed(seed, "feddebug inputs"))
    shape = (INPUTS, *federation.input_shape)
    if not federation.x.is_floating_point():
        return torch.randint(0, federation.vocabulary, shape, generator=generator)
    return torch.randn(shape, generator=generator)


@contextmanager
def outputs(module: nn.Module) -> Iterator[list[Tensor]]:
    """What the layers with neurons give, [inputs, neurons] each, as they are called."""
    seen: list[Tensor] = []

    def keep(layer: nn.Module, given: object, result: Tensor | tuple[Tensor, Tensor]) -> None:
        states = result[0][:, -1] if isinstance(result, tuple) else result
        seen.append(states.detach().flatten(1))

    hooks = [layer.register_forward_hook(keep) for layer in module.modules() if isinstance(layer, NEURONS)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()

"""Made-up worlds for lessons: rows of many kinds, each a fixed function of its number.

A scorer that has seen four data sets knows those four; one that has seen hundreds of worlds, none twice, knows what
they have in common (domain randomisation: Tobin et al., IROS 2017). A job names its rows as
`fedvitals.bench.scorer.worlds:waves_400002`: world 400002, of the family `waves`. A family is a way to make rows;
dimension, classes, how far these are apart, labels that are wrong by nature and what clients have of their own are
drawn for each world. The tables and pictures that people have collected are families too (`collected`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedvitals.bench.scorer import collected
from fedvitals.bench.scorer.collected import Array, Arrays, Ints, Random, Rows
from fedvitals.randomness import stream
from fedvitals.train.sections import DataSpec

TEST_ROWS = 300
TOKENS, WINDOW = 24, 8  # characters of a made-up language, and how many of them are a row
SMALL, LARGE = 4, 400  # numbers in a row
UNLIKENESS = (0.0, 0.5, 1.0)  # spreads of the logarithms of how far natural clients are from the others
MOST_UNLIKE = 5.0  # times as far as the middle one
MANNERS = (0.0, 0.0, 0.5, 1.0)  # how far they do single classes in a way of their own, beside how far they are moved


@dataclass(frozen=True, slots=True)
class World:
    """What is drawn once for all rows of a world."""

    classes: int
    size: int  # about how many numbers a row has
    apart: float  # how far classes are from each other, in the spread of one
    wrong: float  # share of labels that are wrong by nature
    own: float  # how far a natural client's rows are moved from the others'
    uneven: float  # spread of the logarithms of how many rows classes and natural clients have


def drawn(random: Random) -> World:
    return World(
        classes=int(random.choice([2, 2, 3, 4, 5, 7, 10, 10, 16, 30])),
        size=int(np.exp(random.uniform(np.log(SMALL), np.log(LARGE)))),
        apart=float(random.choice([1.0, 1.5, 2.0, 3.0, 5.0])),
        wrong=float(random.choice([0.0, 0.0, 0.0, 0.05, 0.15])),
        own=float(random.choice([0.2, 0.5, 1.0])),
        uneven=float(random.choice([0.0, 0.3, 0.8])),
    )


def _labels(random: Random, world: World, count: int) -> Ints:
    weights = np.exp(random.normal(0, world.uneven, world.classes))
    return random.choice(world.classes, count, p=weights / weights.sum()).astype(np.int64)


def blobs(random: Random, world: World, count: int) -> Rows:
    """A cloud a class, its features of different scale and mixed with each other."""
    y, few = _labels(random, world, count), min(world.size, 64)
    means = random.standard_normal((world.classes, world.size)) * world.apart / np.sqrt(few)
    noise = random.standard_normal((count, world.size)) * np.exp(random.uniform(-1, 1, world.size))
    turn = np.eye(world.size)
    turn[:few, :few] += random.standard_normal((few, few)) * random.choice([0.0, 0.3, 1.0]) / np.sqrt(few)
    return (means[y] * 2 + noise) @ turn * np.exp(random.normal(0, 1)), y


def clusters(random: Random, world: World, count: int) -> Rows:
    """Several clouds a class: no line parts them."""
    y, each = _labels(random, world, count), int(random.integers(2, 5))
    means = random.standard_normal((world.classes * each, world.size)) * world.apart
    return means[y * each + random.integers(each, size=count)] + 1.5 * random.standard_normal((count, world.size)), y


def heavy(random: Random, world: World, count: int) -> Rows:
    """Tails in which single values are a hundred times the usual."""
    y = _labels(random, world, count)
    means = random.standard_normal((world.classes, world.size)) * world.apart
    noise = random.standard_t(random.uniform(1.5, 3.5), (count, world.size))
    return np.clip(means[y] + noise, -100, 100) * np.exp(random.normal(0, 0.7, world.size)), y


def grids(random: Random, world: World, count: int) -> Rows:
    """Yes or no in every place, with a chance that depends on the class."""
    y = _labels(random, world, count)
    chances = 1 / (1 + np.exp(-random.standard_normal((world.classes, world.size)) * world.apart / 2))
    return (random.random((count, world.size)) < chances[y]).astype(np.float32), y


def counts(random: Random, world: World, count: int) -> Rows:
    """How often each word of a vocabulary occurs: few words often, most hardly ever."""
    y, words = _labels(random, world, count), max(world.size, 20)
    rates = np.exp(random.standard_normal((world.classes, words)) * min(world.apart, 2.0)) / np.arange(1, words + 1)
    length = random.integers(5, 40, (count, 1))
    found = random.poisson(length * (rates / rates.sum(axis=1, keepdims=True))[y]).astype(np.float64)
    return found / np.maximum(np.sqrt((found**2).sum(axis=1, keepdims=True)), 1.0), y


def waves(random: Random, world: World, count: int) -> Rows:
    """Series of a few channels: a class has its frequencies, a row its own phase and speed, and noise that lasts."""
    y, channels = _labels(random, world, count), int(random.choice([1, 3, 6]))
    steps = int(np.clip(world.size // channels, 16, 96))
    time = np.linspace(0, 2 * np.pi, steps)[None, :, None] * random.normal(1, 0.05, (count, 1, 1))
    rates, phases = random.uniform(1, 8, (world.classes, channels)), random.uniform(0, 6, (world.classes, channels))
    heights = random.uniform(0.3, 1.0, (world.classes, channels)) * world.apart
    late = random.normal(0, 0.5, (count, 1, 1))
    clear = heights[y][:, None] * np.sin(rates[y][:, None] * time + phases[y][:, None] + late)
    lasting = 0.1 * np.cumsum(random.standard_normal(clear.shape), axis=1)
    level, scale = random.normal(0, 2, channels), np.exp(random.normal(0, 1, channels))
    return (clear + lasting + 0.5 * random.standard_normal(clear.shape) + level) * scale, y


def patches(random: Random, world: World, count: int) -> Rows:
    """Small pictures: a class has its blots, a row has them moved a little."""
    y, side = _labels(random, world, count), int(np.clip(np.sqrt(world.size), 6, 14))
    blots = random.standard_normal((world.classes, side, side))
    for axis in (1, 2):
        blots = blots + np.roll(blots, 1, axis=axis) + np.roll(blots, -1, axis=axis)
    places = np.arange(side)
    down, right = ((places + random.integers(-1, 2, (count, 1))) % side for _ in range(2))
    shown = (blots / blots.std() * world.apart)[y[:, None, None], down[:, :, None], right[:, None, :]]
    return np.clip(64 * (shown + 0.5 * random.standard_normal(shown.shape)), 0, 255).astype(np.uint8), y


def teachers(random: Random, world: World, count: int) -> Rows:
    """Labels that a random network gives: nothing but its borders parts the classes."""
    x = random.standard_normal((count, world.size))
    first = random.standard_normal((world.size, 16)) / np.sqrt(world.size)
    second = random.standard_normal((16, world.classes))
    return x, (np.maximum(x @ first, 0) @ second * world.apart).argmax(axis=1).astype(np.int64)


def tokens(random: Random, world: World, count: int) -> Rows:
    """A language in which the next character depends on the last two."""
    logits = world.apart * random.standard_normal((TOKENS, TOKENS)) + random.standard_normal(TOKENS)
    skip = random.standard_normal((TOKENS, TOKENS))
    rows = random.integers(TOKENS, size=(count, WINDOW + 1))
    for place in range(2, WINDOW + 1):
        chance = logits[rows[:, place - 1]] + skip[rows[:, place - 2]] + random.gumbel(size=(count, TOKENS))
        rows[:, place] = chance.argmax(axis=1)
    return rows[:, :WINDOW].astype(np.uint8), rows[:, WINDOW].astype(np.int64)


Maker = Callable[[Random, World, int], Rows]
MADE_UP: dict[str, Maker] = {
    one.__name__: one for one in (blobs, clusters, heavy, grids, counts, waves, patches, teachers, tokens)
}
FAMILIES = (*MADE_UP, *collected.COLLECTED)


def __getattr__(name: str) -> Callable[[DataSpec], Arrays]:
    """`waves_400002` is the function that gives the rows of that world."""
    family, _, number = name.rpartition("_")
    if family not in FAMILIES or not number.isdecimal():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def rows(data: DataSpec) -> Arrays:
        return world_rows(family, int(number), data)

    return rows


def world_rows(family: str, number: int, data: DataSpec) -> Arrays:
    """`data.rows` rows a client, about; some with clients of their own where the job asks for these."""
    random = stream(number, "world", family)
    world, wanted = drawn(random), data.clients * data.rows
    if family in MADE_UP:
        x, y = MADE_UP[family](random, world, wanted + TEST_ROWS)
    else:
        x, y = collected.COLLECTED[family](random, wanted + TEST_ROWS)
    y = np.where(random.random(len(y)) < world.wrong, random.permutation(y), y)
    found: Arrays = {"x_train": x[:wanted], "y_train": y[:wanted], "x_test": x[wanted:], "y_test": y[wanted:]}
    if family == "tokens":
        found["vocab"] = np.array([chr(97 + place) for place in range(TOKENS)])
    if data.partition == "natural":
        found["client"] = _owners(random, world, y[:wanted], data.clients)
        found["x_train"] = _of_their_own(random, world, found["x_train"], found["y_train"], found["client"])
    return found


def _owners(random: Random, world: World, y: Ints, clients: int) -> Ints:
    """Clients of different size, each with a liking for some of the classes."""
    liking = random.normal(0, world.uneven, clients)[:, None] + random.normal(0, 0.7, (clients, int(y.max()) + 1))
    chances = liking.T[y] + random.gumbel(size=(len(y), clients))
    owner = chances.argmax(axis=1)
    owner[random.permutation(len(y))[: 8 * clients]] = np.arange(8 * clients) % clients  # nobody has next to nothing
    found: Ints = owner.astype(np.int64)
    return found


def _of_their_own(random: Random, world: World, x: Array, y: Ints, client: Ints) -> Array:
    """Numbers moved and stretched a client: another instrument, another hand. Some clients are far more unlike the rest
    than others are, and some do one thing in a way of their own. Tokens and pictures stay as they are."""
    if x.dtype.kind != "f":
        return x
    clients, spread = int(client.max()) + 1, x.std(axis=0)
    single = (1,) * (x.ndim - 1)
    unlike = np.minimum(np.exp(random.normal(0, random.choice(UNLIKENESS), clients)), MOST_UNLIKE).reshape(-1, *single)
    shape = (clients, *x.shape[1:])
    moved = world.own * unlike * spread * random.normal(0, 0.5, shape)
    stretched = np.exp(random.normal(0, 0.2 * world.own, shape) * unlike)
    found: Array = x * stretched[client] + moved[client]
    manner = float(random.choice(MANNERS))  # one draw a client and class, as long as the client is unlike the others
    for label in np.unique(y) if manner else ():
        rows = np.flatnonzero(y == label)
        found[rows] += (manner * world.own * unlike * spread * random.normal(0, 0.5, shape))[client[rows]]
    return found

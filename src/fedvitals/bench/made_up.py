"""Made-up participations with statistics of the size that the recorder hands over, to fill a store with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.vocabulary import STATISTICS, Layer, Layout, Participation, Record, UpdateBlock

LAYERS = 20
BUCKETS = 256
BLOCK = 64
COHORT = 100


def layout(units: int) -> Layout:
    """Twenty layers that share 256 buckets; the rows of the last one are sketched."""
    layers = tuple(Layer(f"block.{index}.weight", (64, 64), "float32", 4096) for index in range(LAYERS))
    return Layout(1, layers, (12,) * 16 + (16,) * 4, LAYERS - 1, units)


def update_block(number: int, units: int, kept_steps: int, rows: int = BLOCK, seed: int = 0) -> UpdateBlock:
    """Statistics, sketches, units and losses of 64 updates. Every value is noise: nothing in it could be deflated."""
    random = np.random.default_rng(seed)
    steps = [np.linspace(0, total - 1, kept_steps) for total in _totals(random, rows, kept_steps)]
    return UpdateBlock(
        number,
        number,
        1,
        random.normal(size=(rows, LAYERS, len(STATISTICS))).astype(np.float32),
        None,
        (random.normal(size=(rows, BUCKETS)) / 16).astype(np.float16),
        random.random((rows, units)).astype(np.float16),
        random.random((rows, units)).astype(np.float16),
        random.integers(-60, 61, (rows, units, 8)).astype(np.int8),
        random.random((rows, kept_steps)).astype(np.float32),
        np.array(steps, dtype=np.int32),
    )


def _totals(random: np.random.Generator, rows: int, kept_steps: int) -> list[int]:
    """Steps taken: so few that all are kept, or, when 32 are kept, many more, another number for each client."""
    return [kept_steps] * rows if kept_steps < 32 else random.integers(32, 2000, size=rows).tolist()


def participations(count: int, clients: int, seed: int = 0, cohort: int = COHORT) -> Iterator[Participation]:
    """Rounds of a hundred clients, or more, drawn from many, as the vectorised executor reports them."""
    random = np.random.default_rng(seed)
    attempts: dict[int, int] = {}
    for first in range(0, count, cohort):
        number = first // cohort
        chosen = random.choice(clients, size=cohort, replace=False).tolist()
        losses = random.random((cohort, 6)).astype(np.float32).tolist()
        seconds = random.random((cohort, 3)).tolist()
        rows = random.integers(50, 300, (cohort, 3)).tolist()
        for slot in range(min(cohort, count - first)):
            attempt = attempts.get(chosen[slot], 0)
            attempts[chosen[slot]] = attempt + 1
            place = first + slot
            yield Participation(
                client=f"client-{chosen[slot]:06d}",
                attempt=attempt,
                round=number,
                base_version=number,
                applied_version=number + 1,
                staleness=0,
                outcome="used",
                samples=rows[slot][0],
                steps=rows[slot][1],
                epochs=3,
                start_ns=number * 65_000_000 + slot,
                end_ns=(number + 1) * 65_000_000 + slot,
                loss=losses[slot][0],
                first_loss=losses[slot][1],
                last_loss=losses[slot][2],
                accuracy=losses[slot][3],
                update_norm=losses[slot][4],
                cosine=losses[slot][5],
                nonfinite=0,
                load_s=seconds[slot][0],
                train_s=seconds[slot][1],
                upload_s=seconds[slot][2],
                raw_bytes_down=30_000,
                wire_bytes_down=30_000,
                raw_bytes_up=30_000,
                wire_bytes_up=28_000 + rows[slot][2],
                peak_memory_bytes=300_000_000 + 4096 * slot,
                received=f"{number:016x}",
                executor="vectorised",
                chunk=number,
                slot=slot,
                attributed=1,
                block=place // BLOCK + 1,
                block_row=place % BLOCK,
            )


def batches(count: int, clients: int, units: int, kept_steps: int) -> list[tuple[list[Record], int]]:
    """All participations with their blocks, as they are put: 64 and their block together, with their bytes."""
    every = list(participations(count, clients))
    found: list[tuple[list[Record], int]] = []
    for number, first in enumerate(range(0, count, BLOCK), start=1):
        some = every[first : first + BLOCK]
        block = update_block(number, units, kept_steps, len(some), seed=number % 16)
        found.append(([*some, block], 512 * len(some) + block_bytes(block)))
    return found


def block_bytes(block: UpdateBlock) -> int:
    arrays = (block.stats, block.sketches, block.unit_norms, block.unit_sums, block.unit_sketches, block.losses)
    return sum(array.nbytes for array in arrays if array is not None)

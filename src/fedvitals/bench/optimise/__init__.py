"""What does each optimisation give, alone and together: time, bytes, memory, accuracy."""

from fedvitals.bench.optimise.measuring import run as run

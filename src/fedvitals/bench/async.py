"""How much sooner a model is there without rounds, and with better chosen clients, where clients are slow or go away.

1,000 clients on the virtual clock; `fedvitals.bench.asynchrony` says which and how.
"""

# ruff: noqa: N999  # a bench is named by the word that is typed; nothing imports it by a statement
from fedvitals.bench.asynchrony.measuring import run as run

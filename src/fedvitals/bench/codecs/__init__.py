"""How many bytes codecs write, how quickly, and how many a model needs to be as good as without them."""

from fedvitals.bench.codecs.measuring import run as run

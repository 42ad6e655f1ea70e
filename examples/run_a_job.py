"""A job from Python: twenty clients on the digits, one of them with its updates turned round.

It prints what was recorded of that client and of the others. Afterwards: fedvitals show last
"""

from __future__ import annotations

from statistics import median

import fedvitals
from fedvitals.train.engine import train

job = fedvitals.Job.from_dict(
    {
        "name": "one-attacker",
        "data": {"source": "digits", "clients": 20},
        "train": {"rounds": 20, "clients_per_round": 10},
        "faults": [{"kind": "sign-flip", "clients": [3], "from_round": 5}],
    }
)
result = train(job)
print(f"accuracy {result.accuracy:.3f}, trained by the executor {result.executor}")

reader = fedvitals.open_store().open("last")
cosines: dict[str, list[float]] = {}
for one in reader.participations():
    if one.round >= 5 and one.cosine is not None:
        cosines.setdefault(one.client, []).append(one.cosine)
for client, values in sorted(cosines.items(), key=lambda item: median(item[1]))[:3]:
    print(f"client {client}: median cosine to the others {median(values):+.2f} in {len(values)} rounds")
reader.close()

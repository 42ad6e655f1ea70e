"""Profile and records -> pictures. Pure functions: a notebook, the report and the dashboard draw with the same ones.

Each gives a plotly Figure that stays readable, and light, from one client to a thousand over hundreds of rounds: what
there is too much of is put together or chosen from, and the figure says so below its title.
"""

from __future__ import annotations

from fedvitals.show.figures.breakdown import breakdown as breakdown
from fedvitals.show.figures.bytes_moved import bytes_moved as bytes_moved
from fedvitals.show.figures.critical_path import critical_path as critical_path
from fedvitals.show.figures.gradient_flow import gradient_flow as gradient_flow
from fedvitals.show.figures.heat_map import MEASURES as MEASURES
from fedvitals.show.figures.heat_map import heat_map as heat_map
from fedvitals.show.figures.learning import learning as learning
from fedvitals.show.figures.memory import memory as memory
from fedvitals.show.figures.waterfall import waterfall as waterfall

"""Toy data: made up, the same each time."""

from hushrec.data import synthetic
from hushrec.data.entries import Entry

ENTRY = Entry(
    name="toy-data",
    title="Made-up ratings of 60 users",
    licence="none needed",
    kind="explicit",
    rating_range=(1.0, 5.0),
    num_users=60,
    num_items=40,
    num_interactions=1_200,
    make=lambda: synthetic(60, 40, 1_200, seed=7),
)

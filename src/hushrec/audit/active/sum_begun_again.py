"""Sum begun again: a round is made with everybody, and begun again without one who is said to be lost.

An honest server does that, when somebody is lost in between. What clients draw by the round is the same both
times, so that the two sums differ by the one's upload alone: see `sum_without_one`.
"""

from dataclasses import replace

from hushrec.audit.active import sum_without_one
from hushrec.audit.scoreboard import Lie

ATTACK = replace(
    sum_without_one.ATTACK,
    name="sum begun again",
    sentence="Summed up twice in a round, the second time without one who is said to be lost, clients tell that "
    "one's items with an F1 of {score:.3f}; as many of the most popular items give {chance:.2f}.",
    lie=Lie(sum_without_one.tell, 2, is_repeated=True, is_one_round=True, drops=("secure_together",)),
)

"""Server extraction, of items that were never told: as `server_extraction.py`, without what can be read off.

Most of what a server ranks first for a client it has told that client at some time. This asks what the copy knows
beyond: both lists leave out every item that the client was ever told.
"""

from dataclasses import replace

from hushrec.audit.attacks import server_extraction
from hushrec.audit.attacks.server_extraction import Copied, agreement
from hushrec.audit.scoreboard import Outcome, Truth


def judge(copied: Copied, truth: Truth) -> Outcome:
    """By client, as in `server_extraction.py`, of items that it neither has nor was told."""
    return agreement(copied, copied.is_own | (copied.told_round > 0), truth)


ATTACK = replace(
    server_extraction.ATTACK,
    name="server extraction untold",
    guesses="the same, of items that a client was never told",
    sentence="Of items that a client was never told, the copy made by 10% of them recommends {score:.0%} of what "
    "the server's model would; with their own data alone, {chance:.0%}.",
    judge=judge,
)

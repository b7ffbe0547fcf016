"""Listed items: every item that a client lists in an upload is one of its own."""

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, by_client, distinct, f1_of, listed, lists
from hushrec.protocol import Role, Seat, View


def guess_listed(view: View) -> Pairs:
    """All pairs of uploads."""
    return distinct(listed(view).pairs)


def judge(pairs: Pairs, truth: Truth) -> Outcome:
    """F1 of each client that listed something."""
    return f1_of(by_client(pairs)[0], pairs, truth.train)


ATTACK = Attack(
    name="listed items",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as all that one upload lists",
    measure="F1",
    sentence="Taking every item that an upload lists for one of the user's own gives an F1 of {score:.2f}; "
    "as many blind guesses from the catalogue give {chance:.2f}.",
    reads=lists,
    look=lambda _before, view, _own: guess_listed(view),
    judge=judge,
)

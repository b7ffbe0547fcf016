"""Order change: items that rise among a client's scores from one upload to the next are its positives.

The second attack in the code of PTF-FedRec's authors; their paper does not mention it. A client trains on its
positives in every round, so their scores should keep rising, while what else it lists falls behind. The server
keeps the last upload of each client. Of the items that it sees again it compares the ranks among just these, and
guesses those that rose, the steepest first, no more of them than the top guess attack.

The authors' code differs where a server could not do the same: it compares ranks that the client computed before
and after the defence of one round, counts items that are not uploaded as ranked last, and goes through the items
in the order of the client's own data, which begins with a positive.

Chance is that of guesses among the items that were listed twice in a row, so that it is the order alone which
counts: positives are listed more often than others, which is another attack (`upload_frequency.py`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.top_guess import Guesses, best_of, judge, last_of, num_guesses
from hushrec.audit.scoreboard import Attack
from hushrec.audit.uploads import Pairs, clients_of, distinct, listed, lists
from hushrec.protocol import Role, Seat, View


class Compared(NamedTuple):
    """The last upload of each client, and what is guessed of those that uploaded again."""

    pairs: Pairs  # ascending
    scores: NDArray[np.float32]
    guesses: Guesses  # among the items that were in both uploads


def compare(before: Compared | None, view: View, generator: np.random.Generator) -> Compared:
    """What the uploads of one more round tell; which of equal rises comes first is drawn."""
    rows, row_scores = listed(view, with_scores=True)
    pairs, scores = last_of(rows, row_scores)
    known, known_scores = (pairs[:0], scores[:0]) if before is None else before[:2]
    again, now, then = np.intersect1d(pairs, known, assume_unique=True, return_indices=True)
    rises = ranks(again, known_scores[then]) - ranks(again, scores[now])
    most = num_guesses(rows)[np.isin(distinct(clients_of(rows)), clients_of(again))]
    guesses = best_of(again, rises + generator.random(len(rises)), most)
    guesses = replace(guesses, is_guess=guesses.is_guess & (rises > 0))
    is_old = ~np.isin(clients_of(known), clients_of(pairs))  # of clients that sat this round out
    kept = np.concatenate([known[is_old], pairs])
    order = np.argsort(kept)
    return Compared(kept[order], np.concatenate([known_scores[is_old], scores])[order], guesses)


def ranks(pairs: Pairs, scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The rank of each pair among its client's, 0 for the highest score; of equal ones the lower item first."""
    order = np.lexsort((pairs, -scores, clients_of(pairs)))
    place = np.empty(len(pairs), np.int64)
    place[order] = np.arange(len(pairs))
    owners = clients_of(pairs)
    return place - np.searchsorted(owners, owners)


ATTACK = Attack(
    name="order change",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those that rise from upload to upload",
    measure="F1",
    sentence="Taking the items that rose most among those listed twice in a row for the user's own gives an F1 of "
    "{score:.2f}; as many blind guesses among these give {chance:.2f}.",
    reads=lambda message_type: lists(message_type, "scores"),
    look=lambda before, view, own: compare(before, view, own.generator),
    judge=lambda compared, truth: judge(compared.guesses, truth),
)

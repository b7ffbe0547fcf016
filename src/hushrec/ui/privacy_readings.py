"""What an attack's guess says of single people: which items are theirs, and how they rated them.

Attacks guess in forms of their own; each reader here turns one form into pairs of a client and an item. A reader
has what the attack has, and never the truth. Where an attack only says what is likely, a reader draws the line
where an attacker would: at one half, or at as many items as the settings, which all know, let expect.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit import one_upload
from hushrec.audit.attacks import count_equations, counts_of_one_round, differing_rounds, intersection
from hushrec.audit.attacks.pulled_up import Scored
from hushrec.audit.attacks.top_guess import best_of, num_guesses
from hushrec.audit.scoreboard import Own
from hushrec.audit.sums import Remembered
from hushrec.audit.uploads import Pairs, by_client, clients_of, items_of

Floats = NDArray[np.float64]

_LIKELY = 0.5
_MORE_THAN_OTHERS = 0.05  # by so much an item must be likelier than for the others in a sum, to be of one person


class Named(NamedTuple):
    """Pairs of a client and an item that is said to be its own, ascending; with its rating, NaN: not said."""

    pairs: Pairs
    ratings: Floats

    @classmethod
    def without_ratings(cls, pairs: Pairs) -> "Named":
        """Items alone."""
        return cls(pairs, np.full(len(pairs), np.nan))

    def of(self, client: int) -> "Named":
        """What is said of one client."""
        is_own = clients_of(self.pairs) == client
        return Named(self.pairs[is_own], self.ratings[is_own])

    @property
    def items(self) -> NDArray[np.int64]:
        """The items of the pairs."""
        return items_of(self.pairs)

    @property
    def has_ratings(self) -> bool:
        """Whether any rating is said."""
        return bool(np.isfinite(self.ratings).any())


Reader = Callable[[Any, Own], Named]


def _of_upload(read: one_upload.Read, own: Own) -> Named:
    """Items on steps of the scale. Whose upload told nothing is left out: all that it lists is no guess."""
    is_said = read.is_rated & np.isfinite(read.ratings)
    ratings = read.ratings[is_said]
    if own.settings.get("biases", False) and own.rating_range is not None:
        low, high = own.rating_range  # ratings are trained on in units of these
        ratings = (low + high) / 2 + ratings * (high - low) / 4
    return Named(read.pairs[is_said], ratings)


def _of_intersection(seen: intersection.Seen, _own: Own) -> Named:
    """What is in every upload of those who uploaded twice or more: of one list nothing can be intersected."""
    owners = np.searchsorted(seen.clients.pairs, clients_of(seen.counts.pairs))
    is_again = seen.clients.times[owners] > 1
    return Named.without_ratings(seen.counts.pairs[intersection.in_every_upload(seen) & is_again])


def _of_sums_of_scores(sums: Any, _own: Own) -> Named:
    """The best fifth, which is what the usual ratio of negatives lets expect."""
    guesses = best_of(sums.pairs, sums.totals, num_guesses(sums.pairs))
    return Named.without_ratings(guesses.pairs[guesses.is_guess])


def _of_pulled_up(scored: Scored, own: Own) -> Named:
    """The best of those that are pulled up, of which one in 1 + rho is real."""
    clients, owners = by_client(scored.pairs)
    expected = np.bincount(owners, minlength=len(clients)) // (1 + int(own.settings["rho"]))
    guesses = best_of(scored.pairs, scored.scores, np.maximum(expected, 1))
    return Named.without_ratings(guesses.pairs[guesses.is_guess])


def _likely(pairs: Pairs, scores: Floats, is_listed: bool) -> Named:
    """What is likely of one client, and not as much of all others in the sum, which is but popular."""
    is_likely = scores > _LIKELY
    if not is_listed and len(pairs):
        items = items_of(pairs)
        totals, counts = np.bincount(items, scores), np.bincount(items)
        others = (totals[items] - scores) / np.maximum(counts[items] - 1, 1)
        is_likely &= scores - others > _MORE_THAN_OTHERS
    return Named.without_ratings(pairs[is_likely])


def _of_counts(known: Remembered, _own: Own) -> Named:
    found = [_likely(*counts_of_one_round.likely(seen), seen.listed is not None) for seen in known.of_last_round()]
    pairs = np.concatenate([one.pairs for one in found]) if found else np.empty(0, np.int64)
    return Named.without_ratings(np.unique(pairs))


def _of_equations(known: Remembered, _own: Own) -> Named:
    if not known.sums:
        return Named.without_ratings(np.empty(0, np.int64))
    return _likely(*count_equations.guess(known), any(one.listed is not None for one in known.sums))


def _of_differences(known: Remembered, _own: Own) -> Named:
    return Named.without_ratings(differing_rounds.differences(known)[0])


def _of_pairs(guess: Any, _own: Own) -> Named:
    return Named.without_ratings(guess.pairs)


def _of_marked(guess: Any, _own: Own) -> Named:
    return Named.without_ratings(guess.pairs[guess.is_guess])


# By the names of the attacks. Those that guess who somebody is, or read rows without a name, name no items.
READERS: dict[str, Reader] = {
    "ratings from one upload": _of_upload,
    "noise match": lambda guess, _own: Named.without_ratings(guess.pairs[guess.is_left]),
    "intersection": _of_intersection,
    "listed items": lambda pairs, _own: Named.without_ratings(pairs),
    "top guess": _of_marked,
    "order change": lambda guess, own: _of_marked(guess.guesses, own),
    "frequency with scores": _of_sums_of_scores,
    "pulled up": _of_pulled_up,
    "fitting pairs": _of_pulled_up,
    "dense gradients": _of_pairs,
    "error signs": _of_pairs,
    "step direction": _of_pairs,
    "counts of one round": _of_counts,
    "differing rounds": _of_differences,
    "count equations": _of_equations,
}

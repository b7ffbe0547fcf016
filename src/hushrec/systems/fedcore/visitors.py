"""Serving visitors whom another partner knows: Algorithm 2 of FedCORE, step by step, on one partner's side.

Prediction must be a product of a user's vector and an item's, plus an offset per item: PMF, and NeuCF with an
activation of degree 2 (`models/neucf_scoring.py`).
"""

from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, PublicError, option
from hushrec.models import neucf_scoring
from hushrec.protocol import Numbers
from hushrec.systems.fedcore.answer_privacy import VectorNoise, clipped_and_noisy, noisy_vectors
from hushrec.systems.fedcore.co_training import Rows
from hushrec.systems.fedcore.encrypted_scores import REQUEST_BYTES, ItemScorer, KeyHolder
from hushrec.systems.fedcore.partners import Agreement, Partner

Bytes = NDArray[np.uint8]

NAME_BYTES = 32
_SAME_SCORES = 1e-3  # encrypted twice they differ by some 1e-6


class Vectors(NamedTuple):
    """Encrypted vectors of visitors, by their places in the list that was asked for, and the keys to use them."""

    places: Numbers
    ciphertexts: Bytes  # (visitors, bytes)
    keys: Bytes

    @classmethod
    def none(cls) -> "Vectors":
        """Of a partner that knows none of the visitors."""
        return cls(np.empty(0, np.int32), np.empty((0, REQUEST_BYTES), np.uint8), np.empty(0, np.uint8))


def ask_about(partner: Partner, terms: Agreement, draws: Draws) -> Numbers:
    """Whom to ask about: visitors drawn at random, as many as are asked for. All earlier answers are forgotten."""
    visitors = np.flatnonzero(~partner.is_rated)
    order = draws.generator(f"asked-visitors-{partner.number}").permutation(len(visitors))
    chosen = np.sort(visitors[order[: terms.num_asked]]).astype(np.int32)
    partner.asked[:], partner.helpers[:], partner.answers[:], partner.owed[:] = -1, -1, np.nan, 0
    partner.asked[: len(chosen)] = chosen
    return chosen


def names_of(ids: NDArray[np.str_]) -> Bytes:
    """How partners call a visitor to each other: a hash of its id."""
    raw = b"".join(sha256(f"hushrec visitor\0{one}".encode()).digest() for one in ids.tolist())
    return np.frombuffer(raw, np.uint8).reshape(-1, NAME_BYTES)


def encrypted_vectors(
    partner: Partner,
    ids: NDArray[np.str_],
    asker: int,
    names: Bytes,
    num_items: int,
    terms: Agreement,
    draws: Draws,
) -> Vectors:
    """Steps 1 and 2: the encrypted vectors of visitors whom this partner knows, as far as its budget goes."""
    if len(names) > terms.num_asked:
        raise HushrecError(
            f"a partner asks about {len(names)} visitors at once; agree on a larger {option('num_asked')}"
        )
    question = sha256(num_items.to_bytes(8, "little") + names.tobytes()).digest()
    if partner.answered.setdefault(asker, question) != question:
        raise PublicError(f"partner {asker} asks again, about others; one question was agreed on")
    known = np.flatnonzero(partner.is_rated)
    own = names_of(ids[known]).view(f"V{NAME_BYTES}").ravel()
    order = np.argsort(own)
    wanted = names.view(f"V{NAME_BYTES}").ravel()
    found = (
        order[np.minimum(np.searchsorted(own, wanted, sorter=order), max(len(own) - 1, 0))] if len(own) else order
    )
    places = np.flatnonzero(own[found] == wanted) if len(own) else np.empty(0, np.int64)
    if terms.query_budget:
        places = places[: terms.query_budget]
    if not len(places):
        return Vectors.none()
    vectors = _left(partner.shown_users[known[found[places]]], partner, terms)
    partner.owed[asker] = len(places), num_items
    holder = _holder(partner, asker, vectors.shape[1], draws)
    return Vectors(places.astype(np.int32), holder.encrypt(vectors), np.frombuffer(holder.public_keys(), np.uint8))


def encrypted_scores(partner: Partner, home: int, answer: Vectors, terms: Agreement) -> Bytes:
    """Step 3: the encrypted scores of this partner's items."""
    if (np.diff(answer.places) <= 0).any():
        raise PublicError("encrypted vectors of a visitor twice, or not in order; begin the round again")
    num_asked = np.count_nonzero(partner.asked >= 0)
    is_new = answer.places < num_asked
    is_new[is_new] = np.isin(partner.helpers[answer.places[is_new]], (-1, home))
    partner.helpers[answer.places[is_new]] = home
    if not is_new.any():
        return np.empty((0, 0), np.uint8)
    factors, offsets = _right(partner, terms)
    scorer = ItemScorer(answer.keys.tobytes(), factors, offsets)
    return scorer.score(answer.ciphertexts[is_new])


def decrypted_scores(partner: Partner, asker: int, answers: Bytes, terms: Agreement, draws: Draws) -> Rows:
    """Step 4: the scores, with noise if agreed on; or, with `top_k`, the places of the best items only."""
    if len(answers) > partner.owed[asker, 0]:
        raise HushrecError("encrypted scores of more visitors than vectors were sent for; begin the round again")
    width = _left(partner.shown_users[:1], partner, terms).shape[1]
    scores: NDArray[np.floating] = _holder(partner, asker, width, draws).decrypt(answers)
    _check_unchanged(partner, asker, scores)
    partner.decrypted[asker] = scores.astype(np.float32)
    if terms.answer_noise:
        scores = clipped_and_noisy(partner, asker, partner.decrypted[asker], terms.answer_noise, draws)
    if terms.top_k:
        best = np.argsort(-scores, axis=1)[:, : terms.top_k]
        return best.astype(np.float32)
    return scores.astype(np.float32)


def _check_unchanged(partner: Partner, asker: int, scores: NDArray[np.floating]) -> None:
    """Refuse other scores of the same vectors: they would get the same noise, and their difference none."""
    vectors = sha256(partner.shown_users.tobytes()).digest()
    known, before = partner.returned.setdefault(asker, (vectors, scores))
    if known != vectors:
        partner.returned[asker] = vectors, scores
    elif before.shape != scores.shape or np.abs(before - scores).max(initial=0.0) > _SAME_SCORES:
        raise PublicError(
            f"partner {asker} wants other scores of the same visitors decrypted; begin the run again"
        )


def take_scores(partner: Partner, home: int, values: Rows, terms: Agreement) -> None:
    """Keep what came back: scores, or for the best items their places counted from the end."""
    places = np.flatnonzero(partner.helpers == home)
    if not len(places):
        return
    num_items = len(partner.item_factors)
    width = min(terms.top_k, num_items) if terms.top_k else num_items
    if values.size != len(places) * width:
        raise HushrecError(
            "a partner returned scores of other items or visitors than were asked for; ask once more"
        )
    rows = values.reshape(len(places), width)
    if terms.top_k:
        if rows.size and not 0 <= rows.min() <= rows.max() < num_items:
            raise HushrecError("a partner returned places of no item; ask once more")
        items = rows.astype(np.int64)
        partner.answers[places, :num_items] = np.nan
        partner.answers[places[:, None], items] = np.arange(width, 0, -1, dtype=np.float32)
    else:
        partner.answers[places, :num_items] = rows


def show_users(partner: Partner, noise: VectorNoise, draws: Draws) -> None:
    """The vectors that visitors' scores are made of: the learned ones, with noise if asked for (Eq. 17).

    The noise follows from the vectors: who asks about the same vector twice gets it with the same noise, and what
    was learned since gets other noise.
    """
    partner.shown_users[:] = noisy_vectors(partner, noise, draws)


def largest_difference(partner: Partner, answers: Rows, vectors: Rows, terms: Agreement) -> float:
    """How far decrypted scores are from those of the same vectors in the clear."""
    factors, offsets = _right(partner, terms)
    plain = _left(vectors, partner, terms) @ factors.T + offsets
    return float(np.abs(answers - plain).max(initial=0.0))


def _left(vectors: Rows, partner: Partner, terms: Agreement) -> NDArray[np.float64]:
    if terms.model == "pmf":
        return vectors.astype(np.float64)
    return neucf_scoring.user_products(vectors, partner.layers).astype(np.float64)


def _right(partner: Partner, terms: Agreement) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if terms.model == "pmf":
        return partner.item_factors.astype(np.float64), np.zeros(len(partner.item_factors))
    factors, offsets = neucf_scoring.item_products(partner.item_factors, partner.layers)
    return factors.astype(np.float64), offsets.astype(np.float64)


def _holder(partner: Partner, asker: int, width: int, draws: Draws) -> KeyHolder:
    """The key for a partner that asks: made anew from its seed whenever it is needed, so it cannot be lost."""
    return KeyHolder(width, int(partner.owed[asker, 1]), draws.key(f"inference-{partner.number}-{asker}"))

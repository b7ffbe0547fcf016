"""Partners' vectors, ready to predict: for a partner's own users, and for visitors whom another one knows."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from hushrec.models import neucf, neucf_scoring
from hushrec.protocol import Numbers
from hushrec.systems.fedcore.answer_privacy import range_of
from hushrec.systems.fedcore.co_training import Rows
from hushrec.systems.fedcore.partners import Agreement, Partnership


@dataclass(frozen=True)
class AnswerNoise:
    """Noise on scores of visitors, of the size of the one that a partner returns: drawn for each user and item."""

    scale: float
    limits: tuple[float, float]  # that scores are clipped to before
    is_visitor: NDArray[np.bool_]  # of every account
    key: int

    def added(self, scores: Rows, users: Numbers, items: NDArray[np.integer]) -> Rows:
        """Scores with noise where they are of visitors; users and items are broadcast to their shape."""
        of_pairs = (users.astype(np.uint64) << np.uint64(32)) | items.astype(np.uint64)
        bits = _mixed(of_pairs ^ np.uint64(self.key))
        sizes = -np.log(((bits >> np.uint64(1)) + 0.5) * 2.0**-63)
        noise = np.where(bits & np.uint64(1), sizes, -sizes) * self.scale
        noisy = (np.clip(scores, *self.limits) + noise).astype(np.float32)
        return np.where(self.is_visitor[users] & np.isfinite(scores), noisy, scores)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words that look random (SplitMix64): the same for the same word."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True)
class PartnerModel:
    """Scores of a partner's items for its users and visitors; items of others have none."""

    user_vectors: Rows  # of every account; a visitor's is that of a partner that knows it
    item_vectors: Rows
    layers: Rows  # of each partner
    user_starts: NDArray[np.int64]
    item_starts: NDArray[np.int64]
    is_pmf: bool
    activation: neucf.Activation
    rating_range: tuple[float, float] | None
    noise: AnswerNoise | None = None

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of pairs, clipped to the range of ratings."""
        scores = np.empty(len(users), np.float32)
        if self.is_pmf:
            np.einsum("ij,ij->i", self.user_vectors[users], self.item_vectors[items], out=scores)
        else:
            partner_of = self._partner_of(items)
            for partner in range(len(self.layers)):
                is_own = partner_of == partner
                scores[is_own] = neucf_scoring.predict(
                    self.user_vectors, self.item_vectors, self.layers[partner], users[is_own], items[is_own],
                    self.activation,
                )  # fmt: skip
        if self.noise is not None:
            scores = self.noise.added(scores, users, items)
        return scores if self.rating_range is None else np.clip(scores, *self.rating_range)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items; those of other partners are not to be had."""
        scores = np.full((len(users), len(self.item_vectors)), -np.inf, np.float32)
        partner_of = np.searchsorted(self.user_starts, users, "right") - 1
        for partner in range(len(self.item_starts) - 1):
            rows = np.flatnonzero(partner_of == partner)
            items = slice(int(self.item_starts[partner]), int(self.item_starts[partner + 1]))
            vectors, own = self.user_vectors[users[rows]], self.item_vectors[items]
            if self.is_pmf:
                scores[rows, items] = vectors @ own.T
            else:
                scores[rows, items] = neucf_scoring.score(vectors, own, self.layers[partner], self.activation)
        if self.noise is not None:
            return self.noise.added(scores, users[:, None], np.arange(len(self.item_vectors)))
        return scores

    def vectors_of_items(self) -> NDArray[np.float32]:
        """Each partner's, from their mean, in columns of their own: those of two partners cannot be compared."""
        num_items, size = self.item_vectors.shape
        found = np.zeros((num_items, size * (len(self.item_starts) - 1)), np.float32)
        for partner in range(len(self.item_starts) - 1):
            items = slice(int(self.item_starts[partner]), int(self.item_starts[partner + 1]))
            own = self.item_vectors[items]
            found[items, partner * size : (partner + 1) * size] = own - own.mean(axis=0)
        return found

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores for a newcomer at each partner that has some of these items; each uses what it has itself."""
        scores = np.full(len(self.item_vectors), -np.inf, np.float32)
        partner_of = self._partner_of(items)
        for partner in np.unique(partner_of).tolist():
            rated, given = items[partner_of == partner], ratings[partner_of == partner]
            own = slice(int(self.item_starts[partner]), int(self.item_starts[partner + 1]))
            users = self.user_vectors[int(self.user_starts[partner]) : int(self.user_starts[partner + 1])]
            if self.is_pmf:
                scores[own] = self.item_vectors[own] @ _nearest_to_mean(users, self.item_vectors[rated], given)
                continue
            layers, limits = self.layers[partner], self.rating_range
            rated_vectors = self.item_vectors[rated]
            vector = neucf_scoring.newcomer_of(users, rated_vectors, layers, given, self.activation, limits)
            scores[own] = neucf_scoring.score(vector, self.item_vectors[own], layers, self.activation)[0]
        return scores

    def _partner_of(self, items: Numbers) -> NDArray[np.int64]:
        return np.searchsorted(self.item_starts, items, "right") - 1


def _nearest_to_mean(users: Rows, rated: Rows, ratings: NDArray[np.float32]) -> NDArray[np.float64]:
    """A newcomer's vector: the mean user's, moved by what the newcomer rated otherwise."""
    mean: NDArray[np.float64] = users.mean(axis=0, dtype=np.float64)
    known = rated.astype(np.float64)
    pull = np.eye(known.shape[1])  # of one rating's weight, so that few ratings do not say too much
    return mean + np.linalg.solve(known.T @ known + pull, known.T @ (ratings - known @ mean))


def partner_model(
    private: Partnership, terms: Agreement, rating_range: tuple[float, float] | None
) -> PartnerModel:
    """The model of all partners in this process."""
    rows = private.rows
    return PartnerModel(
        _with_visitors(private), private.item_factors, private.layers, rows.user_starts, rows.item_starts,
        terms.model == "pmf", terms.activation, rating_range, _noise(private, terms),
    )  # fmt: skip


def _noise(private: Partnership, terms: Agreement) -> AnswerNoise | None:
    if not terms.answer_noise:
        return None
    is_visitor = np.concatenate([~partner.is_rated for partner in private.partners])
    digest = blake2b(np.ascontiguousarray(private.shown_users).data, digest_size=8).digest()
    key = int.from_bytes(digest, "little")
    return AnswerNoise(terms.answer_noise, range_of(private.rows.ratings), is_visitor, key)


@dataclass(frozen=True)
class OwnModel:
    """What a partner can use alone: its users' vectors, and the answers that it got about visitors."""

    own: PartnerModel  # of visitors it knows nothing: they have the mean user's vector
    answer_of: NDArray[np.int64]  # of every account: the row of answers about it, -1 if there is none
    answers: Rows  # (rows, items of all partners): scores or ranks, -inf where there are none
    are_scores: bool

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of pairs, clipped to the range of ratings."""
        scores, rows = self.own.predict(users, items), self.answer_of[users]
        if self.are_scores:
            answers = self.answers[rows[rows >= 0], items[rows >= 0]]
            limits = self.own.rating_range
            scores[rows >= 0] = answers if limits is None else np.clip(answers, *limits)
        return scores

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items, or the ranks that came back in their place."""
        scores, rows = self.own.score(users), self.answer_of[users]
        scores[rows >= 0] = self.answers[rows[rows >= 0]]
        return scores

    def vectors_of_items(self) -> NDArray[np.float32]:
        """As without the others."""
        return self.own.vectors_of_items()

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores for a newcomer, as without the others."""
        return self.own.fold_in(items, ratings)


def own_model(private: Partnership, terms: Agreement, rating_range: tuple[float, float] | None) -> OwnModel:
    """What the partners in this process can each use alone."""
    rows = private.rows
    own = PartnerModel(
        _alone(private), private.item_factors, private.layers, rows.user_starts, rows.item_starts,
        terms.model == "pmf", terms.activation, rating_range,
    )  # fmt: skip
    places, order = np.nonzero(np.isfinite(private.answers).any(axis=2))
    answer_of = np.full(len(private.user_factors), -1, np.int64)
    answer_of[rows.user_starts[places] + private.asked[places, order]] = np.arange(len(places))
    answers = np.full((len(places), len(private.item_factors)), -np.inf, np.float32)
    for row, (place, number) in enumerate(zip(places, order, strict=True)):
        first, last = rows.item_starts[place : place + 2]
        found = private.answers[place, number, : last - first]
        answers[row, first:last] = np.where(np.isnan(found), -np.inf, found)
    return OwnModel(own, answer_of, answers, not terms.top_k)


def _alone(private: Partnership) -> Rows:
    """Every account's vector: a visitor's is the mean of its partner's users."""
    vectors, starts = private.user_factors.copy(), private.rows.user_starts
    for place, partner in enumerate(private.partners):
        visitors = starts[place] + np.flatnonzero(~partner.is_rated)
        vectors[visitors] = partner.user_factors[partner.is_rated].mean(axis=0)
    return vectors


def _with_visitors(private: Partnership) -> Rows:
    """Every account's vector: a visitor's from the first partner that knows it, else the mean of those here."""
    rows, vectors = private.rows, _alone(private)
    is_rated = np.concatenate([partner.is_rated for partner in private.partners])
    known = np.flatnonzero(is_rated)
    ids, first = np.unique(rows.user_ids[known], return_index=True)
    visitors = np.flatnonzero(~is_rated)
    places = np.minimum(np.searchsorted(ids, rows.user_ids[visitors]), len(ids) - 1)
    is_known = ids[places] == rows.user_ids[visitors]
    vectors[visitors[is_known]] = private.shown_users[known[first[places[is_known]]]]
    return vectors

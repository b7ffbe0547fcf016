"""A fitted model with all that lists need: lists for users and newcomers, and items that are alike."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.data.interactions import RatingRange
from hushrec.data.item_choice import Mask
from hushrec.errors import HushrecError, option
from hushrec.evaluation import top_k
from hushrec.evaluation.candidates import candidates_by, num_raters, usable_min_raters
from hushrec.evaluation.neighbours import directions, liking, reasons
from hushrec.evaluation.scoring import item_vectors_of, shown_scores_of
from hushrec.evaluation.top_k import NO_ITEM
from hushrec.protocol import Numbers, Ragged, Scorer
from hushrec.runs.lists import Lists, Recommendation
from hushrec.runs.newcomers import newcomer_scores, shown_scores
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job

_BLOCK_SCORES = 4_000_000  # scores of a block of users, so that lists of all of them take little memory


@dataclass(frozen=True, eq=False)
class Ranker:
    """A fitted model with all that lists need, computed once; users and items by their numbers."""

    train: Interactions
    scorer: Scorer
    seen: Ragged  # items, a slice per user
    num_raters: NDArray[np.int64]  # of each item
    min_raters: int  # how many an item needs to be listed, unless told
    scale: RatingRange = None  # of scores, where they are ratings; None: they only rank

    @classmethod
    def of(cls, job: Job, progress: Progress, min_raters: int | None = None) -> "Ranker":
        """Lists from what a training ended with, of items with as many raters as is usual, unless told."""
        train, rows, feedback = job.train, job.train.by_user(), job.system.feedback
        if min_raters is None:
            min_raters = usable_min_raters(feedback.usual_min_raters, train, max(feedback.usual_lengths))
        scale = train.rating_range if feedback.needs_ratings else None
        seen = Ragged(rows.starts, rows.items)
        return cls(train, job.scorer(progress), seen, num_raters(train), min_raters, scale)

    def for_users(
        self,
        users: Numbers,
        k: int,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        among: Mask | None = None,
        why: bool = False,
    ) -> list[list[Recommendation]]:
        """The best k items for each user."""
        return self.lists(users, k, exclude_seen, min_raters, among, why).entries(self.train)

    def lists(
        self, users: Numbers, k: int, exclude_seen: bool, min_raters: int | None, among: Mask | None, why: bool
    ) -> Lists:
        """The same by numbers."""
        own = users.astype(np.int64)
        seen = self.seen.take(own)
        # BLAS multiplies a row alone in another way, with other last bits: nobody is scored alone.
        scores = self.scorer.score(users if len(users) > 1 else np.repeat(users, 2))[: len(users)]
        liked = Ragged(self.seen.starts, self._liking).take(own).values if why else None
        found = self._best(scores, k, seen, exclude_seen, min_raters, among, liked)
        shown = shown_scores_of(self.scorer, found.scores)
        return found._replace(scores=shown if self.scale is None else np.clip(shown, *self.scale))

    def for_newcomer(
        self,
        items: Numbers,
        ratings: NDArray[np.float32],
        k: int,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        among: Mask | None = None,
        why: bool = False,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings; refused where their scores are not plausible."""
        seen = Ragged(np.array([0, len(items)]), items)
        scores = newcomer_scores(self.scorer, items, ratings, self.scale)
        liked = liking(ratings, self.train.rating_range, len(items)) if why else None
        found = self._best(scores[None], k, seen, exclude_seen, min_raters, among, liked).entries(self.train)[0]
        best = shown_scores_of(self.scorer, np.array([entry.score for entry in found], np.float32))
        shown = shown_scores(best, self.scale)
        return [replace(entry, score=score) for entry, score in zip(found, shown.tolist(), strict=True)]

    def blocks(
        self, k: int, exclude_seen: bool, min_raters: int | None, among: Mask | None, why: bool
    ) -> Iterator[pa.RecordBatch]:
        """The lists of all users as rows of a table, so many users at a time that little memory is taken."""
        num_users, train = self.train.num_users, self.train
        size = max(2, _BLOCK_SCORES // max(train.num_items, 1))
        for first in range(0, num_users, size):
            users = np.arange(first, min(first + size, num_users), dtype=np.int32)
            yield self.lists(users, k, exclude_seen, min_raters, among, why).table(users, train, why)

    def similar(
        self, item: int, k: int, min_raters: int | None = None, among: Mask | None = None
    ) -> list[Recommendation]:
        """The k items nearest to an item; their scores are cosines."""
        of_items = self.directions
        if len(self.train) and not self.num_raters[item]:
            raise HushrecError(f"nobody rated item {self.train.item_ids[item]} in training: nothing is like it")
        if not of_items[item].any():
            raise HushrecError(
                f"the model learned nothing about item {self.train.item_ids[item]}: nothing is like it"
            )
        itself = Ragged(np.array([0, 1]), np.array([item], np.int32))
        lists = self._best((of_items @ of_items[item])[None], k, itself, True, min_raters, among)
        return lists.entries(self.train)[0]

    @property
    def explains(self) -> bool:
        """Whether it can say which items are alike."""
        return item_vectors_of(self.scorer) is not None

    @cached_property
    def directions(self) -> NDArray[np.float32]:
        """Items as nearness is measured between them."""
        vectors = item_vectors_of(self.scorer)
        if vectors is None:
            raise HushrecError(
                "this model has no vectors of items that could be compared; it cannot say what is alike"
            )
        return directions(vectors, self.num_raters > 0)

    @cached_property
    def _liking(self) -> NDArray[np.float32]:
        return liking(self.train.by_user().ratings, self.train.rating_range, len(self.seen.values))

    def _best(
        self,
        scores: NDArray[np.float32],
        k: int,
        own: Ragged,
        exclude_own: bool,
        min_raters: int | None,
        among: Mask | None,
        liked: NDArray[np.float32] | None = None,
    ) -> Lists:
        """The best of each row of scores; with how much people like what is their own, also why."""
        check_length(k)
        needed = self.min_raters if min_raters is None else min_raters
        if needed < 0:
            raise HushrecError(
                f"{needed} raters are fewer than none; use {option('min_raters', 0)} to list every item"
            )
        is_candidate = candidates_by(self.num_raters, needed)
        if among is not None:
            if not among.any():
                raise HushrecError("what was chosen leaves no item to list; choose more, or leave out fewer")
            is_candidate = among if is_candidate is None else is_candidate & among
            if not is_candidate.any():
                raise HushrecError(
                    f"no chosen item has {needed} raters; choose others, or use fewer, as in "
                    f"{option('min_raters', 0)}"
                )
        excluded = (own.starts, own.values) if exclude_own else None
        items, scores = top_k(scores, min(k, self.train.num_items), excluded, is_candidate)
        items = np.where(np.isfinite(scores), items, NO_ITEM)
        if liked is None:
            return Lists(items, scores, np.full_like(items, NO_ITEM), np.zeros_like(scores))
        return Lists(items, scores, *reasons(self.directions, items, own.starts, own.values, liked))


def check_length(k: int) -> None:
    """Refuse what is no length of a list."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool):
        raise HushrecError(f"a list of {k!r} items cannot be; ask for a whole number of them")
    if k < 1:
        raise HushrecError(f"a list of {k} items is too short; ask for at least 1")

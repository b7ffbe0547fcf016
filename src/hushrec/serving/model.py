"""The model that is served: who may serve it, and its lists by the ids of the source."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushrec.data.item_choice import Mask
from hushrec.errors import HushrecError, NewcomerError, PublicError
from hushrec.estimators import load_run
from hushrec.protocol import Numbers
from hushrec.registry import system_named
from hushrec.runs.lists import Recommendation, title_of
from hushrec.runs.newcomers import checked_ratings
from hushrec.runs.ranker import Ranker
from hushrec.runs.record import Run, read_run


class UnknownUserError(Exception):
    """No user has this id. Says nothing, so that nothing can be echoed."""


class UnknownItemError(Exception):
    """No item has this id. Says nothing, so that nothing can be echoed."""


class RequestError(Exception):
    """A request that no list answers; its text is the reason and holds nothing that was sent."""


Ids = Sequence[int | str]


@dataclass(frozen=True)
class Wish:
    """What a list must be like."""

    k: int
    include_seen: bool = False
    min_raters: int | None = None  # None: as the run did
    only: Ids | None = None
    leave_out: Ids = ()
    why: bool = False


@dataclass(frozen=True)
class Item:
    """An item that was looked for."""

    item: int | str
    title: str


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A run's model. Ids are looked up as texts, exactly: `07` and `+7` are not the user 7."""

    run: Run
    ranker: Ranker
    users: dict[str, int]
    items: dict[str, int]
    takes_newcomers: bool
    digest: str

    def __str__(self) -> str:
        return f"{self.run.system} on {self.run.data}"

    @property
    def labels(self) -> dict[str, str]:
        """What tells it from others, in metrics."""
        return {"system": self.run.system, "data": self.run.data, "sha256": self.digest[:16]}

    def for_user(self, user_id: str, wish: Wish) -> list[Recommendation]:
        """The best items for a user of the run."""
        if user_id not in self.users:
            raise UnknownUserError
        number, among = np.array([self.users[user_id]], np.int32), self._checked(wish)
        return self.ranker.for_users(number, wish.k, not wish.include_seen, wish.min_raters, among, wish.why)[0]

    def for_newcomer(self, items: Ids, ratings: Sequence[float] | None, wish: Wish) -> list[Recommendation]:
        """The best items for someone with these ratings, which are not kept."""
        numbers, among = self._rated(items), self._checked(wish)
        try:
            given = checked_ratings(self.ranker.train, ratings, len(numbers))
            return self.ranker.for_newcomer(
                numbers, given, wish.k, not wish.include_seen, wish.min_raters, among, wish.why
            )
        except NewcomerError:
            raise RequestError("this model serves only users that it was trained with") from None
        except PublicError as error:
            raise RequestError(str(error)) from None

    def similar(self, item_id: str, wish: Wish) -> list[Recommendation]:
        """The items most like one of them."""
        if item_id not in self.items:
            raise UnknownItemError
        among = self._checked(replace(wish, why=True))
        try:
            return self.ranker.similar(self.items[item_id], wish.k, wish.min_raters, among)
        except HushrecError:
            raise RequestError("the model learned nothing about this item: nothing is like it") from None

    def search(self, text: str, most: int) -> list[Item]:
        """Items whose title holds all words of a text, or whose id it is; those with most raters first."""
        train, words = self.ranker.train, plain(text).split()
        found = self._by_raters
        if words:
            is_found = np.logical_and.reduce([np.char.find(self._searched, word) >= 0 for word in words])
            if text.strip() in self.items:
                is_found[self.items[text.strip()]] = True
            found = found[is_found[found]]
        return [Item(train.item_ids[number].item(), title_of(train, number)) for number in found[:most].tolist()]

    @cached_property
    def _searched(self) -> NDArray[np.str_]:
        titles = self.ranker.train.titles
        shown = self.ranker.train.item_ids if titles is None else titles
        return np.array([plain(str(text)) for text in shown.tolist()], np.str_)

    @cached_property
    def _by_raters(self) -> NDArray[np.int64]:
        return np.argsort(-self.ranker.num_raters, kind="stable")

    def _checked(self, wish: Wish) -> Mask | None:
        """The items that may be listed; None: all. What this model does not know cannot be listed: passed over."""
        train, num_raters = self.ranker.train, self.ranker.num_raters
        if wish.why and not self.ranker.explains:
            raise RequestError("this model has no vectors of items; it cannot say which are alike")
        needed = self.ranker.min_raters if wish.min_raters is None else wish.min_raters
        if len(train) and needed > num_raters.max():
            raise RequestError(f"no item has that many raters; use a min_raters of at most {num_raters.max()}")
        if wish.only is None and not wish.leave_out:
            return None
        mask = np.full(train.num_items, wish.only is None)
        mask[self._known(wish.only or ())] = True
        mask[self._known(wish.leave_out)] = False
        if not (mask & (num_raters >= needed)).any() and (len(train) or not mask.any()):
            raise RequestError("none of the chosen items can be listed; choose others, or a lower min_raters")
        return mask

    def _known(self, items: Ids) -> list[int]:
        return [self.items[str(item)] for item in items if str(item) in self.items]

    def _rated(self, items: Ids) -> Numbers:
        numbers = [self.items.get(str(item), -1) for item in items]
        if -1 in numbers:
            raise RequestError(f"item {numbers.index(-1) + 1} of {len(numbers)} is not known to this model")
        if len(set(numbers)) < len(numbers):
            raise RequestError("an item is listed twice; send each item once")
        return np.array(numbers, np.int32)


def plain(text: str) -> str:
    """A text without accents and capitals, to search in.

    >>> plain("Amélie (2001)")
    'amelie (2001)'
    """
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part)).casefold()


def load_served(folder: Path, fold: int | None = None, is_simulation: bool = False) -> ServedModel:
    """The model of a run, with kernels compiled, if the holder of this folder may rank for its users."""
    run = read_run(folder)
    check_may_serve(run, is_simulation)
    ranker = load_run(folder, fold).ranker()
    users, items = ranker.train.user_ids.tolist(), ranker.train.item_ids.tolist()
    model = ServedModel(
        run,
        ranker,
        {str(user_id): number for number, user_id in enumerate(users)},
        {str(item_id): number for number, item_id in enumerate(items)},
        _takes_newcomers(ranker),
        next(result.model_sha256 for result in run.folds if fold in (None, result.fold)),
    )
    model.for_user(str(users[0]), Wish(1, min_raters=0, why=ranker.explains))
    model.search("a", 1)
    return model


def _takes_newcomers(ranker: Ranker) -> bool:
    """Whether the model has lists for people whom it was not trained with: tried with one rating."""
    most_rated = np.array([ranker.num_raters.argmax()], np.int32)
    highest = ranker.train.rating_range[1] if ranker.train.rating_range else 1.0
    try:
        ranker.for_newcomer(most_rated, np.array([highest], np.float32), 1, min_raters=0)
    except NewcomerError:
        return False
    except HushrecError:  # it does, but not for this one
        return True
    return True


def check_may_serve(run: Run, is_simulation: bool) -> None:
    """Refuse a folder that holds vectors which in a deployment only the users' own devices or nodes hold."""
    if run.party == "node" or system_named(run.system).result.server is not None:
        return
    if run.party == "server":
        raise HushrecError(f"the server of {run.system} cannot rank; use `hushrec recommend` or `serve` on a node")
    if not is_simulation:
        raise HushrecError(
            f"the server of {run.system} cannot rank, users' vectors are their own; "
            "use `hushrec recommend` on a node, or --simulation to serve this simulation's vectors"
        )

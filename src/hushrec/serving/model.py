"""The model that is served: who may serve it, and its lists by the ids of the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushrec.errors import HushrecError, NewcomerError, PublicError
from hushrec.recommender import Ranker, Recommendation, load_run
from hushrec.registry import system_named
from hushrec.runs.newcomers import checked_ratings
from hushrec.runs.record import Run, read_run


class UnknownUserError(Exception):
    """No user has this id. Says nothing, so that nothing can be echoed."""


class RequestError(Exception):
    """A request that no list answers; its text is the reason and holds nothing that was sent."""


@dataclass(frozen=True)
class Wish:
    """What a list must be like."""

    k: int
    include_seen: bool
    min_raters: int


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A run's model. Ids are looked up as texts, exactly: `07` and `+7` are not the user 7."""

    run: Run
    ranker: Ranker
    users: dict[str, int]
    items: dict[str, int]

    def for_user(self, user_id: str, wish: Wish) -> list[Recommendation]:
        """The best items for a user of the run."""
        if user_id not in self.users:
            raise UnknownUserError
        self._check(wish)
        number = np.array([self.users[user_id]], np.int32)
        return self.ranker.for_users(number, wish.k, not wish.include_seen, wish.min_raters)[0]

    def for_newcomer(
        self, items: Sequence[int | str], ratings: Sequence[float], wish: Wish
    ) -> list[Recommendation]:
        """The best items for someone with these ratings, which are not kept."""
        self._check(wish)
        numbers = self._rated(items)
        try:
            given = checked_ratings(self.ranker.train, ratings, len(numbers))
            return self.ranker.for_newcomer(numbers, given, wish.k, not wish.include_seen, wish.min_raters)
        except NewcomerError:
            raise RequestError("this model serves only users that it was trained with") from None
        except PublicError as error:
            raise RequestError(str(error)) from None

    def _check(self, wish: Wish) -> None:
        most = int(self.ranker.num_raters.max())
        if wish.min_raters > most:
            raise RequestError(f"no item has that many raters; use a min_raters of at most {most}")

    def _rated(self, items: Sequence[int | str]) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        numbers = [self.items.get(str(item), -1) for item in items]
        if -1 in numbers:
            raise RequestError(f"item {numbers.index(-1) + 1} of {len(numbers)} is not known to this model")
        if len(set(numbers)) < len(numbers):
            raise RequestError("an item is listed twice; send each item once")
        return np.array(numbers, np.int32)


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
    )
    model.for_user(str(users[0]), Wish(1, False, 0))
    return model


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

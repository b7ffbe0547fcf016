"""Small federations of partners, and runs of them that are watched ask by ask."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np

from hushrec.data import Interactions, join
from hushrec.data.checking import checked
from hushrec.data.holdings.partners import rows_of_partners
from hushrec.protocol import Answer, AnySystem, Ask
from hushrec.systems.fedcore.partners import Partner, Partnership

from .runs import Finished, Ratings, run

Rated = dict[str, dict[str, float]]


def interactions(rated: Rated) -> Interactions:
    """By user a rating by item; a user without ratings is a visitor."""
    users = sorted(rated)
    items = sorted({item for of_user in rated.values() for item in of_user})
    rows = [
        (users.index(user), items.index(item), of_user[item])
        for user, of_user in rated.items()
        for item in of_user
    ]
    columns = list(zip(*rows, strict=True))
    return checked(
        Interactions(
            users=np.array(columns[0], np.int32), items=np.array(columns[1], np.int32),
            ratings=np.array(columns[2], np.float32), timestamps=None, order=None, user_ids=np.array(users),
            item_ids=np.array(items), titles=None, rating_range=(1.0, 5.0), name="made", sha256="",
            is_synthetic=True,
        )
    )  # fmt: skip


def partners(**rated: Rated) -> Ratings:
    """What each partner has, by its name."""
    joined = join({name: interactions(own) for name, own in rated.items()})
    return Ratings(rows_of_partners(joined), joined.num_items)


def pairwise_common(num_each: int = 3, num_items: int = 4) -> Ratings:
    """Three partners; users that a and b have, a and c, b and c, all of them, and one's own."""
    rated: dict[str, Rated] = {"a": {}, "b": {}, "c": {}}
    for group in ("a", "b", "c", "ab", "ac", "bc", "abc"):
        for number in range(num_each):
            for name in group:
                items = {f"{name}{item}": float(1 + (number + item) % 5) for item in range(num_items)}
                rated[name][f"{group}-{number}"] = items
    return partners(**rated)


Look = Callable[[Partnership, Ask, Answer], None]


def watched(ratings: Ratings, look: Look, **options: Any) -> Finished:
    """A run of FedCORE; `look` is called after each ask, before the server goes on."""
    held: list[Partnership] = []

    def prepare(state: Any, private: Partnership) -> Any:
        held.append(private)
        return state

    def change(system: AnySystem) -> AnySystem:
        def one_round(*arguments: Any) -> Generator[Ask, Answer, Any]:
            steps, answer = system.round(*arguments), None
            while True:
                try:
                    ask = steps.send(answer)
                except StopIteration as end:
                    return end.value
                answer = yield ask
                look(held[0], ask, answer)

        return replace(system, round=one_round)

    return run("fedcore", ratings, prepare=prepare, change=change, **{"inference": "none", **options})


def ids_of(private: Partnership, partner: Partner) -> tuple[np.ndarray, np.ndarray]:
    """A partner's own names of its users and items."""
    return private.ids_of(int(np.flatnonzero(private.numbers == partner.number)[0]))


def shared_vectors(private: Partnership, one: Partner, other: Partner) -> list[tuple[np.ndarray, np.ndarray]]:
    """The copies of what two partners have in common: users' vectors, aligned items', and the layers."""
    pairs = [(one.layers, other.layers)]
    for numbers, vectors, kind in (("common_users", "user_factors", 0), ("common_items", "item_factors", 1)):
        common = [getattr(partner, numbers) for partner in (one, other)]
        both = np.intersect1d(common[0][common[0] >= 0], common[1][common[1] >= 0])
        places = [np.array([np.flatnonzero(of == number)[0] for number in both], np.int64) for of in common]
        names = [
            ids_of(private, partner)[kind][place] for partner, place in zip((one, other), places, strict=True)
        ]
        assert names[0].tolist() == names[1].tolist(), "a common number is of the same user or item"
        pairs.append((getattr(one, vectors)[places[0]], getattr(other, vectors)[places[1]]))
    return pairs


def assert_in_step(private: Partnership, present: list[int]) -> int:
    """All copies of present partners are equal to the last bit; how many numbers were compared."""
    compared = 0
    for place, one in enumerate(present):
        for other in present[place + 1 :]:
            for ours, theirs in shared_vectors(private, private.partners[one], private.partners[other]):
                assert ours.tobytes() == theirs.tobytes()
                compared += ours.size
    return compared

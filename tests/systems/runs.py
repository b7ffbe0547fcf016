"""Small runs of systems on rows made by hand, driven by the runtime in this process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np

from hushrec.data import Deal, Interactions, OwnerRows, PartnerRows, UserRows, copies, owned, synthetic
from hushrec.data.holdings.owners import rows_of_owners
from hushrec.data.holdings.partners import rows_of_partners
from hushrec.draws import Draws
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.protocol import AnySystem, Message, result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import Losses
from hushrec.testing import small_runs
from hushrec.testing.small_runs import digest as digest


@dataclass(frozen=True)
class Ratings:
    """Who rated what, by party: by user or, where organisations hold ratings or items, by partner or owner."""

    rows: UserRows | PartnerRows | OwnerRows
    num_items: int

    @property
    def num_parties(self) -> int:
        if isinstance(self.rows, OwnerRows):
            return len(self.rows.names) + self.rows.has_users
        return len(self.rows.starts) - 1

    @property
    def num_users(self) -> int:
        """Of partners: how many accounts there are with all of them."""
        if isinstance(self.rows, OwnerRows):
            return self.rows.num_users
        return self.num_parties if isinstance(self.rows, UserRows) else int(self.rows.user_starts[-1])

    @property
    def last(self) -> int:
        """The last party that others can do without: not the users' side."""
        return self.num_parties - 1 - isinstance(self.rows, OwnerRows)

    def without_the_last(self) -> "Ratings":
        """The same federation without that party."""
        if isinstance(self.rows, OwnerRows):
            held_starts = self.rows.held_starts[:-1]
            held = self.rows.held[: held_starts[-1]]
            fewer = replace(self.rows, names=self.rows.names[:-1], held_starts=held_starts, held=held)
            return Ratings(fewer, self.num_items)
        rows, starts = self.rows, self.rows.starts[:-1]
        items, ratings = rows.items[: starts[-1]], rows.ratings[: starts[-1]]
        if isinstance(rows, UserRows):
            return Ratings(UserRows(starts, items, ratings, rows.rating_range), self.num_items)
        user_starts, item_starts = rows.user_starts[:-1], rows.item_starts[:-1]
        user_ids, item_ids = rows.user_ids[: user_starts[-1]], rows.item_ids[: item_starts[-1]]
        users = rows.users[: starts[-1]]
        fewer = PartnerRows(starts, users, items, ratings, user_starts, item_starts, user_ids, item_ids)
        return Ratings(fewer, int(item_starts[-1]))


def some_ratings(num_users: int = 24, num_items: int = 30, seed: int = 0) -> Ratings:
    return Ratings(synthetic(num_users, num_items, 8 * num_users, seed=seed).by_user(), num_items)


def some_partners(num_partners: int = 3, num_users: int = 40, num_items: int = 30, seed: int = 0) -> Ratings:
    """Ratings of partners; half of the users and items are common to all, the others have one partner each."""
    data = synthetic(num_users, num_items, 16 * num_users, seed=seed)
    train = next(copies(data, Deal(num_partners), seed)).train
    return Ratings(rows_of_partners(train), train.num_items)


def some_events(num_owners: int = 3, num_users: int = 24, num_items: int = 30, seed: int = 0) -> Ratings:
    """A stream of good and bad; a third of the items has two owners, if there are several."""
    data = owned(synthetic(num_users, num_items, 12 * num_users, seed=seed).as_signed(), str(num_owners), seed)
    return Ratings(rows_of_owners(data), num_items)


def held(name: str, data: Interactions) -> Interactions:
    """Data as the parties of a system hold them: in one piece, or dealt to two partners."""
    is_dealt = SYSTEMS[name].holders.usual_split == "partners"
    return next(copies(data, Deal(), 0)).train if is_dealt else data


def table(rated: list[dict[int, float]], num_items: int) -> Ratings:
    """Per user a rating by item."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in rated])]).astype(np.int64)
    items = np.array([item for one in rated for item in sorted(one)], np.int32)
    ratings = np.array([one[item] for one in rated for item in sorted(one)], np.float32)
    return Ratings(UserRows(starts, items, ratings), num_items)


SMALL: dict[str, dict[str, Any]] = {
    name: {setting: value for setting, value in system.about.small.items() if setting not in ("epochs", "parts")}
    for name, system in SYSTEMS.items()
}
"""Settings that reach every branch within a few rounds; how many, a test says itself."""


def in_rounds(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the system spells them: where it counts epochs, a round is a whole one."""
    known = {entry.name for entry in fields(SYSTEMS[name].config)}
    if "num_rounds" in known or "num_rounds" not in values:
        return dict(values)
    others = {setting: value for setting, value in values.items() if setting != "num_rounds"}
    return {**others, "epochs": values["num_rounds"], "parts": 1}


def settings_of(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the system has a setting for."""
    known = {entry.name for entry in fields(SYSTEMS[name].config)} | {"preset"}
    return {setting: value for setting, value in in_rounds(name, values).items() if setting in known}


def short(name: str, **values: Any) -> dict[str, Any]:
    """Settings for a run of a moment, whatever the system; the paper's, also where data would choose others."""
    presets = SYSTEMS[name].about.presets
    paper = {"preset": next(iter(presets))} if "general" in presets else {}
    sizes = settings_of(name, {"num_rounds": 4, "num_factors": 5})
    plain = settings_of(name, {"inference": "none"})
    own = SMALL[name] if SYSTEMS[name].feedback is IMPLICIT else plain
    return {**paper, **sizes, **own, **in_rounds(name, values)}


def as_options(system: str, values: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed: pairs one after the other, lists of any length with commas, and flags."""
    words, kinds = [], get_type_hints(SYSTEMS[system].config)
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            continue
        numbers = [str(number) for number in value] if isinstance(value, tuple) else [str(value)]
        words += [
            f"--{name.replace('_', '-')}",
            *([",".join(numbers)] if kinds.get(name) == tuple[int, ...] else numbers),
        ]
    return words


def learning_rates(name: str) -> list[str]:
    """The names of a system's learning rates."""
    return [entry.name for entry in fields(SYSTEMS[name].config) if entry.name.endswith("learning_rate")]


class Finished(small_runs.Finished):
    """A run after its last round, with factors by name."""

    @property
    def user_factors(self) -> np.ndarray:
        return np.array(self.scorer.user_factors)

    @property
    def item_factors(self) -> np.ndarray:
        return self.states[-1].item_factors

    def model_arrays(self, round_number: int = -1) -> dict[str, np.ndarray]:
        """What the driving side has learned, after a round."""
        return result_arrays(self.states[round_number])


def run(
    name: str,
    ratings: Ratings,
    *,
    seed: int = 0,
    threads: int = 1,
    cohort_size: int | None = None,
    losses: Losses | None = None,
    who_denoises: list[int] | None = None,
    prepare: Callable[[Any, Any], Any] | None = None,
    change: Callable[[AnySystem], AnySystem] = lambda system: system,
    num_factors: int = 5,
    num_rounds: int = 4,
    **values: Any,
) -> Finished:
    """Run a system. `who_denoises` names the denoisers; `prepare` may change the first state and private state."""
    system, draws = change(SYSTEMS[name]), Draws(seed)
    sizes = settings_of(name, {"num_factors": num_factors, "num_rounds": num_rounds})
    config = system.configure({**sizes, **values})
    numbers = np.arange(ratings.num_parties, dtype=np.int32)
    rows = replace(ratings.rows, ratings=None) if system.feedback is IMPLICIT else ratings.rows
    state = system.start(ratings.num_parties, ratings.num_items, config, draws)
    private = system.enrol(numbers, rows, ratings.num_items, config, draws)
    if who_denoises is not None and hasattr(state, "denoisers"):
        state = replace(state, denoisers=np.array(who_denoises, np.int32))
    if prepare is not None:
        state = prepare(state, private)
    finished = small_runs.finish(
        system, config, draws, state, private, threads=threads, cohort_size=cohort_size, losses=losses
    )
    return Finished(**vars(finished))


def assert_same(one: Finished, other: Finished) -> None:
    """The same result to the last bit."""
    assert one.results.keys() == other.results.keys()
    for name, array in one.results.items():
        np.testing.assert_array_equal(array, other.results[name], err_msg=name)


def losing(*lost: tuple[int, type[Message] | None, int]) -> Losses:
    """Who is lost: (round, type of request or None for any, client)."""

    def losses(round_number: int, request: type[Message], to: np.ndarray) -> np.ndarray:
        gone = [one for number, kind, one in lost if number == round_number and kind in (None, request)]
        return np.isin(to, gone)

    return losses


HAND_WORKED = table([{0: 4.0}, {0: 5.0, 1: 3.0}], num_items=2)
"""Two users, two items, one factor. User 0 has rated item 0 only, so item 1 is all that it can fill in."""


def hand_worked(name: str, **values: Any) -> Finished:
    """One round from U = (1, 2) and V = (1, 2) with gamma = 1/4; user 1 is the denoiser, if there is one."""

    def prepare(state: Any, private: Any) -> Any:
        users = np.array([[1], [2]], np.float32)
        if hasattr(state, "user_factors"):
            state = replace(state, user_factors=users)
        else:
            private.user_factors[:] = users
        return replace(state, item_factors=np.array([[1], [2]], np.float32))

    return run(
        name,
        HAND_WORKED,
        num_factors=1,
        num_rounds=1,
        learning_rate=0.25,
        who_denoises=[1],
        prepare=prepare,
        cohort_size=2,
        **values,
    )

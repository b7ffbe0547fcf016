"""Small runs of systems, driven by the runtime in this process."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hushrec.data import Deal, Interactions, copies, owned
from hushrec.data.interactions import OwnerRows, PartnerRows, UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.protocol import Message, Recorded, Scorer, System, Transcript
from hushrec.runtime.checkpoint import model_arrays, private_arrays
from hushrec.runtime.in_process import InProcess, Losses, RuntimeOptions
from hushrec.runtime.wire import encode
from hushrec.registry import SYSTEMS


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
            return Ratings(UserRows(starts, items, ratings), self.num_items)
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
    return Ratings(train.by_partner(), train.num_items)


def some_events(num_owners: int = 3, num_users: int = 24, num_items: int = 30, seed: int = 0) -> Ratings:
    """A stream of good and bad; a third of the items has two owners, if there are several."""
    data = owned(synthetic(num_users, num_items, 12 * num_users, seed=seed).as_signed(), str(num_owners), seed)
    return Ratings(data.by_owner(), num_items)


def ratings_for(name: str) -> Ratings:
    """Some ratings, held by the parties that the system is for."""
    of_parties = {
        "users": some_ratings, "partners": some_partners, "owners": some_events, "owner": lambda: some_events(1),
    }  # fmt: skip
    return of_parties[SYSTEMS[name].parties]()


def held(name: str, data: Interactions) -> Interactions:
    """Data as the parties of a system hold them: in one piece, or dealt to two partners."""
    return next(copies(data, Deal(), 0)).train if SYSTEMS[name].parties == "partners" else data


def table(rated: list[dict[int, float]], num_items: int) -> Ratings:
    """Per user a rating by item."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in rated])]).astype(np.int64)
    items = np.array([item for one in rated for item in sorted(one)], np.int32)
    ratings = np.array([one[item] for one in rated for item in sorted(one)], np.float32)
    return Ratings(UserRows(starts, items, ratings), num_items)


SMALL: dict[str, dict[str, Any]] = {
    "pmf": {},
    "fedrec": {"rho": 2, "predict_after": 1, "local_steps": 3},
    "fedrec++": {"rho": 2, "predict_after": 1, "local_steps": 3, "denoisers": 3},
    "sdcf": {"temperature": 0.1},
    "sdcf-denoised": {"temperature": 0.1, "denoisers": 3},
    "ptf-fedrec": {
        "client_factors": 4, "client_layers": (4, 3), "server_factors": 4, "server_layers": (4, 3),
        "local_epochs": 2, "num_told": 6, "client_learning_rate": 0.01, "server_learning_rate": 0.01,
    },
    "fcf": {"clients_per_step": 10},
    "fedmf": {"encryption": "none"},
    "metamf": {"item_memory": 3, "memory_size": 4, "hidden_size": 6, "batch_size": 10},
    "neumf": {"layers": (4, 3), "batch_size": 64},
    "ngcf": {"num_graph_layers": 2, "batch_size": 64},
    "lightgcn": {"num_graph_layers": 2, "batch_size": 64},
    "fedcore": {
        "model": "neucf", "unaligned": 0.5, "privatizer": "dp+average", "batch_size": 16, "inference": "none",
    },
    "neucf": {"batch_size": 16},
    "average": {},
    "drift": {"window": 100, "theta": 2, "batch": 3, "flag": "inside", "recommended": 2, "learning_rate": 0.5},
    "saros": {"window": 100, "recommended": 2, "learning_rate": 0.5},
}  # fmt: skip
"""Settings that reach every branch within a few rounds."""


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
    """Settings for a run of a moment, whatever the system."""
    sizes = settings_of(name, {"num_rounds": 4, "num_factors": 5})
    plain = settings_of(name, {"inference": "none"})
    own = SMALL[name] if SYSTEMS[name].feedback == "implicit" else plain
    return {**sizes, **own, **in_rounds(name, values)}


def as_options(values: Mapping[str, Any]) -> list[str]:
    """Settings as they are typed."""
    words = []
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *(str(number) for number in numbers)]
    return words


def learning_rates(name: str) -> list[str]:
    """The names of a system's learning rates."""
    return [entry.name for entry in fields(SYSTEMS[name].config) if entry.name.endswith("learning_rate")]


@dataclass(frozen=True)
class Finished:
    """A run after its last round."""

    system: System[Any, Any, Any]
    config: Any
    states: list[Any]  # before the first round and after each
    private: Any
    transcript: Transcript

    @property
    def scorer(self) -> Scorer:
        return self.system.model(self.states[-1], self.private, self.config, None)

    @property
    def user_factors(self) -> np.ndarray:
        return np.array(self.scorer.user_factors)

    @property
    def item_factors(self) -> np.ndarray:
        return self.states[-1].item_factors

    def model_arrays(self, round_number: int = -1) -> dict[str, np.ndarray]:
        """What the driving side has learned, after a round."""
        return model_arrays(self.system, self.states[round_number])

    @property
    def results(self) -> dict[str, np.ndarray]:
        """All that was learned."""
        return self.model_arrays() | private_arrays(self.system, self.private)

    def sent(self, message_type: type[Message], round_number: int | None = None) -> list[Recorded]:
        return [
            one
            for one in self.transcript.recorded
            if type(one.message) is message_type and round_number in (None, one.round_number)
        ]


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
    change: Callable[[System[Any, Any, Any]], System[Any, Any, Any]] = lambda system: system,
    num_factors: int = 5,
    num_rounds: int = 4,
    **values: Any,
) -> Finished:
    """Run a system. `who_denoises` names the denoisers; `prepare` may change the first state and private state."""
    system, draws = change(SYSTEMS[name]), Draws(seed)
    sizes = settings_of(name, {"num_factors": num_factors, "num_rounds": num_rounds})
    config = system.configure({**sizes, **values})
    numbers = np.arange(ratings.num_parties, dtype=np.int32)
    rows = replace(ratings.rows, ratings=None) if system.feedback == "implicit" else ratings.rows
    state = system.init(ratings.num_parties, ratings.num_items, config, draws)
    private = system.enrol(numbers, rows, ratings.num_items, config, draws)
    if who_denoises is not None and hasattr(state, "denoisers"):
        state = replace(state, denoisers=np.array(who_denoises, np.int32))
    if prepare is not None:
        state = prepare(state, private)
    transcript = Transcript(keep_payloads=True)
    options = RuntimeOptions(threads=threads, cohort_size=cohort_size, keep_payloads=True, losses=losses)
    runtime = InProcess(system, config, draws, private, transcript, options)
    states = [state]
    try:
        for round_number in range(1, config.num_rounds + 1):
            states.append(runtime.run_round(states[-1], round_number))
    finally:
        runtime.close()
    return Finished(system, config, states, private, transcript)


def assert_same(one: Finished, other: Finished) -> None:
    """The same result to the last bit."""
    assert one.results.keys() == other.results.keys()
    for name, array in one.results.items():
        np.testing.assert_array_equal(array, other.results[name], err_msg=name)


def frames(finished: Finished) -> Iterator[tuple[tuple[int, str, int], Recorded, bytes]]:
    """Every party's message in a frame of its own, with its place in the order of rounds, types and parties."""
    for sent in finished.transcript.recorded:
        names = sent.numbers if sent.addressees is None else sent.addressees
        senders = sent.numbers if len(sent.numbers) == len(names) else np.repeat(sent.numbers, len(names))
        for place, party in enumerate(senders):
            own = slice(place, place + 1)
            one = sent._replace(numbers=senders[own], message=sent.message.part(place, place + 1))
            key = (sent.round_number, type(sent.message).__name__, int(party))
            yield key, one, encode(one.message, sent.round_number, names[own])


def digest(finished: Finished, *left_out: type[Message]) -> str:
    """SHA-256 of all frames, whatever the order in which they were sent."""
    ordered = sorted((key, frame) for key, sent, frame in frames(finished) if type(sent.message) not in left_out)
    return hashlib.sha256(b"".join(frame for _, frame in ordered)).hexdigest()


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

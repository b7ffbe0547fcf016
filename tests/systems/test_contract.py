"""What every system owes, whatever it does."""

import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hushrec.systems
from hushrec import settings
from hushrec.data.interactions import OwnerRows, PartnerRows, UserRows
from hushrec.data.synthetic import synthetic
from hushrec.errors import HushrecError
from hushrec.errors import DivergedError
from hushrec.privacy.sealing import SEAL_BYTES
from hushrec.protocol import Cohort, Handler, Message, Reply, System
from hushrec.runs.folds import run as run_experiment
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.wire import code_of, decode
from hushrec.registry import SYSTEMS, system_named

from .runs import (
    SMALL,
    Finished,
    Ratings,
    assert_same,
    digest,
    frames,
    in_rounds,
    learning_rates,
    ratings_for,
    run,
    settings_of,
    some_ratings,
    table,
)

NAMES = list(SYSTEMS)
IMPLICIT = [name for name in NAMES if SYSTEMS[name].feedback == "implicit"]
EXPLICIT = [name for name in NAMES if SYSTEMS[name].feedback == "explicit"]
OWNED = [name for name in NAMES if SYSTEMS[name].parties in ("owners", "owner")]
SEVERAL = [name for name in NAMES if SYSTEMS[name].parties != "owner"]  # others than the one owner can be lost
ASK_ONCE = [
    name
    for name in NAMES
    if SYSTEMS[name].parties != "owner" and (SYSTEMS[name].hands_over_data or name == "average")
]
ASK_AGAIN = [name for name in NAMES if name not in ASK_ONCE and SYSTEMS[name].parties == "users"]
LEARNS = [name for name in NAMES if name != "average"]  # that one draws nothing, learns nothing and ranks nothing
# A partner that is lost stays out: its copies of common vectors are no longer in step with those of the others.
COMES_BACK = [name for name in NAMES if SYSTEMS[name].parties == "users"]
SERVES_NEWCOMERS = [*(name for name in EXPLICIT if name != "neucf"), "fcf", "fedmf", *OWNED]
COUNTS_CLIENTS = ["ptf-fedrec", "metamf", "neumf", "ngcf", "lightgcn", "neucf"]
"""Here the server draws for all clients at once, so that one client more changes the numbers of others."""

LEARNING: dict[str, dict[str, Any]] = {
    "pmf": {"learning_rate": 0.3, "decay": 1.0},
    "fedrec": {"learning_rate": 0.3, "decay": 1.0, "rho": 1},
    "fedrec++": {"learning_rate": 0.3, "decay": 1.0, "rho": 1, "denoisers": 3},
    "sdcf": {"learning_rate": 0.01, "decay": 1.0},
    "sdcf-denoised": {"learning_rate": 0.01, "decay": 1.0, "denoisers": 3},
    # Of the 11 items that a client does not have it trains 9 as negatives: hardly any are shown.
    "ptf-fedrec": {
        "client_factors": 8, "client_layers": (8, 8), "client_learning_rate": 0.01, "num_negatives": 1,
        "server_factors": 8, "server_layers": (8, 8), "server_learning_rate": 0.01, "server_batch": 64,
        "defense": "sampling", "least_beta": 1.0, "least_gamma": 0.1, "most_gamma": 0.2, "num_told": 3,
        "num_rounds": 20,
    },
    "fcf": {"learning_rate": 0.05},
    "fedmf": {
        "encryption": "none", "learning_rate": 0.05, "num_negatives": 1, "regularization": 0.01, "num_rounds": 100,
    },
    "metamf": {
        "item_memory": 4, "memory_size": 8, "hidden_size": 16, "num_negatives": 1, "batch_size": 10,
        "learning_rate": 0.01,
    },
    "neumf": {"layers": (8, 8), "num_negatives": 1, "batch_size": 128, "learning_rate": 0.01},
    "ngcf": {"num_negatives": 1, "learning_rate": 0.01},
    "lightgcn": {"num_negatives": 1, "learning_rate": 0.01},
    "fedcore": {"batch_size": 16, "learning_rate": 0.4, "inference": "none"},
    "neucf": {"batch_size": 16, "learning_rate": 0.05, "decay": 1.0},
    "drift": {"window": 50, "learning_rate": 0.3},
    "saros": {"window": 50, "learning_rate": 0.3},
}  # fmt: skip
"""Settings with which a small table is learned."""


def small(name: str, ratings: Ratings | None = None, **options: Any) -> Finished:
    return run(name, ratings or ratings_for(name), **{**SMALL.get(name, {}), **options})


def scores_of(finished: Finished, ratings: Ratings, num_users: int | None = None) -> np.ndarray:
    """Scores of all items that can be had: of partners, each user's at its own one."""
    users = np.arange(ratings.num_users if num_users is None else num_users, dtype=np.int32)
    scores, is_own = finished.scorer.score(users), np.ones((len(users), ratings.num_items), np.bool_)
    if isinstance(ratings.rows, PartnerRows):
        partners = [
            np.searchsorted(starts, numbers, "right")
            for starts, numbers in (
                (ratings.rows.user_starts, users),
                (ratings.rows.item_starts, np.arange(ratings.num_items)),
            )
        ]
        is_own = partners[0][:, None] == partners[1]
    assert (scores[~is_own] == -np.inf).all(), "nobody recommends another's items"
    return np.where(is_own, scores, np.nan)[is_own]


# --- The registry ------------------------------------------------------------------------------------------


def test_registry_is_the_files_of_the_folder() -> None:
    folder = Path(hushrec.systems.__file__).parent
    stems = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    modules = {stem: importlib.import_module(f"hushrec.systems.{stem}") for stem in stems}
    in_files = {stem: module.SYSTEM for stem, module in modules.items() if hasattr(module, "SYSTEM")}
    for stem in modules.keys() - in_files.keys():
        assert stem.partition("_")[0] in in_files, "a part of a system has its name in front"
    assert {system.name: system for system in in_files.values()} == SYSTEMS
    for stem, system in in_files.items():
        assert system.name == stem.replace("_plus_plus", "++").replace("_", "-")


def test_unknown_system_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(HushrecError, match=r"no system 'fedrek'; choose from pmf, fedrec, fedrec\+\+"):
        system_named("fedrek")
    assert system_named("fedrec++") is SYSTEMS["fedrec++"]


@pytest.mark.parametrize("name", NAMES)
class TestDeclarations:
    def test_docstring_has_citation_round_threat_model_and_symbols(self, name: str) -> None:
        text = importlib.import_module(SYSTEMS[name].init.__module__).__doc__
        for part in ("The round", "Threat model:", "Symbols:"):
            assert part in text
        assert re.search(r"\((?:[A-Z][\w ]+)?(?:19|20)\d\d\)", text)

    def test_every_message_says_what_it_reveals(self, name: str) -> None:
        for message in SYSTEMS[name].messages:
            assert message.__doc__.startswith("Reveals:"), message
            assert {message.sender, message.receiver} - {None}

    def test_handlers_and_inboxes_serve_declared_messages(self, name: str) -> None:
        system = SYSTEMS[name]
        assert set(system.handlers) <= set(system.messages)
        assert set(system.inboxes) <= set(system.messages)

    def test_codes_of_messages_are_distinct(self, name: str) -> None:
        codes = [code_of(message) for message in SYSTEMS[name].messages]
        assert len(set(codes)) == len(codes)

    def test_arrays_that_are_named_exist(self, name: str) -> None:
        system, finished = SYSTEMS[name], small(name, num_rounds=1)
        for field in system.model_arrays:
            assert isinstance(getattr(finished.states[-1], field), np.ndarray)
        for field in (*system.learned, *system.private_arrays):
            assert isinstance(getattr(finished.private, field), np.ndarray)
        assert system.model_arrays
        assert set(system.shared_arrays) <= set(system.private_arrays)
        assert set(system.private_arrays) <= set(system.learned), "a checkpoint holds the result"

    def test_config_round_trips(self, name: str) -> None:
        config_type = SYSTEMS[name].config
        rates = dict.fromkeys(learning_rates(name), 0.125)
        config = settings.build(config_type, {**SMALL[name], **in_rounds(name, {"num_rounds": 7}), **rates})
        values = settings.to_dict(config)
        assert settings.build(config_type, values) == config
        assert settings.build(config_type, json.loads(json.dumps(values))) == config
        assert msgspec.json.decode(msgspec.json.encode(config), type=config_type) == config
        text = "".join(f"{field} = {json.dumps(value)}\n" for field, value in values.items())
        assert settings.build(config_type, tomllib.loads(text)) == config
        assert msgspec.toml.decode(text, type=config_type) == config
        assert config != config_type()

    def test_unknown_setting_is_an_error_with_a_hint(self, name: str) -> None:
        rate = [*learning_rates(name), "num_rounds"][0]
        with pytest.raises(HushrecError, match=f"unknown setting {rate}s; did you mean {rate}"):
            settings.build(SYSTEMS[name].config, {f"{rate}s": 0.1})
        with pytest.raises(
            HushrecError, match=rf"unknown setting zzz; known: .*{'epochs' if name in OWNED else 'num_rounds'}"
        ):
            settings.build(SYSTEMS[name].config, {"zzz": 0.1})

    def test_impossible_settings_are_refused(self, name: str) -> None:
        impossible = [
            *((rate, value) for rate in learning_rates(name) for value in (0.0, -1.0, float("inf"), "fast")),
            *(
                (entry.name, value)
                for entry in fields(SYSTEMS[name].config)
                if entry.name.endswith(
                    ("_factors", "_rounds", "batch_size", "batch", "epochs", "_layers", "parts")
                )
                for value in (0, -1, 2.5)
            ),
            ("decay", 0.0),
            ("decay", 1.5),
            ("participation", 0.0),
            ("participation", 1.5),
            ("preset", "papr"),
        ]
        for setting, value in impossible:
            if value == 0 and getattr(SYSTEMS[name].config(), setting, None) == 0:
                continue  # stands for the usual value
            if setting == "preset" or settings_of(name, {setting: value}):
                flag = f"--{setting.replace('_', '-')}|bad setting: .*{setting}|no preset"
                with pytest.raises(HushrecError, match=flag) as refused:
                    SYSTEMS[name].configure({setting: value})
                assert "\n" not in str(refused.value)

    def test_presets_are_settings(self, name: str) -> None:
        """The first preset is what the defaults are; what is typed wins over a preset."""
        system = SYSTEMS[name]
        for place, (preset, values) in enumerate(system.presets.items()):
            assert (system.configure({"preset": preset}) == system.config()) == (place == 0)
            assert system.configure({"preset": preset}) == system.configure(values)
            assert system.configure({"preset": preset, "num_rounds": 7}) == system.configure(
                {**values, "num_rounds": 7}
            )

    def test_every_setting_has_a_help_text(self, name: str) -> None:
        for field in SYSTEMS[name].config.__dataclass_fields__.values():
            assert field.metadata["help"]


# --- The same run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_transcript_whatever_threads_and_cohorts(name: str) -> None:
    expected = small(name, threads=1, cohort_size=1)
    for threads, cohort_size in ((1, 7), (1, 1000), (1, None), (2, 1), (2, 7), (2, None)):
        finished = small(name, threads=threads, cohort_size=cohort_size)
        assert_same(finished, expected)
        assert digest(finished) == digest(expected)


@pytest.mark.parametrize("name", LEARNS)
def test_another_seed_gives_another_run(name: str) -> None:
    one, other = small(name, seed=0), small(name, seed=1)
    for field, array in one.results.items():
        again = other.results[field]
        assert array.shape != again.shape or (array != again).mean() > 0.5, field
    assert (scores_of(one, ratings_for(name)) != scores_of(other, ratings_for(name))).mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_private_state_of_the_caller_is_not_touched(name: str) -> None:
    """The ratings of two runs that share them stay as they were."""
    ratings = ratings_for(name)
    before = {field: array.copy() for field, array in vars(ratings.rows).items() if isinstance(array, np.ndarray)}
    assert len(before) >= 3
    small(name, ratings)
    for field, array in before.items():
        np.testing.assert_array_equal(getattr(ratings.rows, field), array)


# --- What is sent ------------------------------------------------------------------------------------------


def assert_equal_messages(one: Message, other: Message) -> None:
    assert type(one) is type(other)
    for kind in one.kinds():
        left, right = getattr(one, kind.name), getattr(other, kind.name)
        if kind.layout == "ragged":
            np.testing.assert_array_equal(left.starts, right.starts)
            left, right = left.values, right.values
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()


SERVING = {"activation": "quadratic", "inference": "ckks", "num_asked": 2, "num_rounds": 1}
WAYS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    ("fedmf", {"variant": "part"}),
    ("fedmf", {"encryption": "bfv"}),
    ("fedcore", {"model": "pmf", "privatizer": "none", "unaligned": 1.0}),
    ("fedcore", SERVING),
    ("drift", {"batch": 1, "flag": "outside"}),
    ("drift", {"encryption": "none"}),
]


@pytest.mark.parametrize(("name", "values"), WAYS)
@pytest.mark.parametrize("cohort_size", [1, 7, None])
def test_messages_survive_the_wire_and_bytes_are_counted_exactly(
    name: str, values: dict[str, Any], cohort_size: int | None
) -> None:
    need_tenseal(values)
    finished = small(name, cohort_size=cohort_size, **values)
    sizes: dict[tuple[int, type[Message]], list[int]] = {}
    for (round_number, _, party), sent, frame in frames(finished):
        decoded = decode(frame, SYSTEMS[name].messages)
        assert_equal_messages(decoded.message, sent.message)
        assert decoded.round_number == round_number
        is_mail = sent.addressees is not None
        assert is_mail or decoded.numbers.tolist() == [party]
        size = len(frame) + sent.message.absent_bytes(1) + (SEAL_BYTES if is_mail else 0)
        sizes.setdefault((round_number, type(sent.message)), []).append(size)
    tallies = finished.transcript.tallies
    assert {key: (len(one), sum(one)) for key, one in sizes.items()} == {
        key: (tally.messages, tally.payload_bytes) for key, tally in tallies.items()
    }


def need_tenseal(values: Mapping[str, Any]) -> None:
    if {"bfv", "ckks"} & set(values.values()):
        pytest.importorskip("tenseal")


@pytest.mark.parametrize("name", NAMES)
def test_only_declared_messages_are_sent_and_all_of_them(name: str) -> None:
    values = SERVING if SYSTEMS[name].parties == "partners" else {}
    need_tenseal(values)
    sent = {type(one.message) for one in small(name, **values).transcript.recorded}
    assert sent == set(SYSTEMS[name].messages)


@pytest.mark.parametrize(("name", "values"), WAYS)
def test_ragged_columns_of_a_message_are_parallel(name: str, values: dict[str, Any]) -> None:
    need_tenseal(values)
    for sent in small(name, **values).transcript.recorded:
        columns = [getattr(sent.message, kind.name) for kind in sent.message.kinds() if kind.layout == "ragged"]
        for column in columns:
            np.testing.assert_array_equal(column.starts, columns[0].starts)
            assert len(column) == len(sent.numbers if sent.addressees is None else sent.addressees)


# --- What is learned ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Board:
    """Ratings, and of each user the item that is to be ranked first among those that it has not rated."""

    ratings: Ratings
    users: np.ndarray  # as whom each user is served
    wanted: np.ndarray

    def rated_by(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """Items and ratings."""
        rows = self.ratings.rows
        if isinstance(rows, OwnerRows):
            is_mine = rows.users == user
            return rows.items[is_mine], rows.is_positive[is_mine].astype(np.float32)
        if isinstance(rows, UserRows):
            mine = slice(rows.starts[user], rows.starts[user + 1])
            return rows.items[mine], rows.ratings[mine]
        partner = int(np.searchsorted(rows.user_starts, user, "right")) - 1
        own = slice(rows.starts[partner], rows.starts[partner + 1])
        is_mine = rows.users[own] == user - rows.user_starts[partner]
        items = rows.items[own][is_mine] + rows.item_starts[partner]
        return items.astype(np.int32), rows.ratings[own][is_mine]


def by_two_partners(ratings: Ratings, wanted: np.ndarray) -> Board:
    """The same users at two partners, each of whom has half of the items, and their ratings of these."""
    num_users, half = ratings.num_users, ratings.num_items // 2
    of_rows = np.repeat(np.arange(num_users, dtype=np.int32), np.diff(ratings.rows.starts))
    is_first = ratings.rows.items < half
    order = np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)])
    rows = PartnerRows(
        np.array([0, np.count_nonzero(is_first), len(is_first)]), of_rows[order],
        ratings.rows.items[order] % half, ratings.rows.ratings[order],
        np.array([0, num_users, 2 * num_users]), np.array([0, half, 2 * half]),
        np.tile(np.arange(num_users).astype(np.str_), 2), np.arange(2 * half).astype(np.str_),
    )  # fmt: skip
    users = np.arange(num_users, dtype=np.int32) + num_users * (wanted >= half)
    return Board(Ratings(rows, 2 * half), users.astype(np.int32), wanted)


def by_owners(ratings: Ratings, wanted: np.ndarray, num_owners: int) -> Board:
    """The same as a stream in a random order; the first owner holds the first items, and so on."""
    users = np.repeat(np.arange(ratings.num_users, dtype=np.int32), np.diff(ratings.rows.starts))
    order = np.random.default_rng(0).permutation(len(users))
    held = np.arange(ratings.num_items, dtype=np.int32)
    starts = np.linspace(0, len(held), num_owners + 1).astype(np.int64)
    rows = OwnerRows(
        tuple(map(str, range(num_owners))), starts, held, True, users[order], ratings.rows.items[order],
        ratings.rows.ratings[order] > 3, ratings.num_users,
    )  # fmt: skip
    return Board(Ratings(rows, ratings.num_items), np.arange(ratings.num_users, dtype=np.int32), wanted)


def checkerboard(name: str, num_users: int = 40, num_items: int = 20) -> Board:
    """Even users like even items, odd users odd ones: 5 or 1 points. Of each user one liked item and three others
    are withheld. Where there are positives only, all others are.
    """
    draws, rated, withheld = np.random.default_rng(0), [], []
    for user in range(num_users):
        liked = np.arange(user % 2, num_items, 2)
        others = np.arange(1 - user % 2, num_items, 2)
        wanted = int(draws.choice(liked))
        num_hidden = len(others) if SYSTEMS[name].feedback == "implicit" else 3
        hidden = {wanted, *draws.choice(others, num_hidden, replace=False).tolist()}
        rated.append(
            {item: 5.0 if item % 2 == user % 2 else 1.0 for item in range(num_items) if item not in hidden}
        )
        withheld.append(wanted)
    ratings, wanted = table(rated, num_items), np.array(withheld)
    if SYSTEMS[name].parties == "partners":
        return by_two_partners(ratings, wanted)
    if name in OWNED:
        return by_owners(ratings, wanted, 2 if SYSTEMS[name].parties == "owners" else 1)
    return Board(ratings, np.arange(num_users, dtype=np.int32), wanted)


@pytest.mark.parametrize("name", LEARNS)
def test_a_planted_checkerboards_withheld_item_is_ranked_first(name: str) -> None:
    """By chance a user's first of 4 is the right one with 1/4, its first of 11 with 1/11; here all 40 are, or 38
    where it may be drawn as a negative (MetaMF: 34). Newcomers are served as well, or told that they cannot be.
    """
    board = checkerboard(name)
    finished = run(name, board.ratings, **{"num_rounds": 60, **LEARNING[name]})
    assert np.isfinite(scores_of(finished, board.ratings)).all()
    least = 40 if name not in IMPLICIT else 34 if name == "metamf" else 38
    scores, rated = finished.scorer.score(board.users).copy(), [board.rated_by(user) for user in board.users]
    for row, (items, _) in zip(scores, rated, strict=True):
        row[items] = -np.inf
    assert (scores.argmax(axis=1) == board.wanted).sum() >= least
    model = finished.system.model(
        finished.states[-1], finished.private, finished.config, (1.0, 5.0) if name in EXPLICIT else None
    )
    if name not in SERVES_NEWCOMERS:
        with pytest.raises(HushrecError, match=r"\A(?=.*newcomer).*; .*\Z"):
            model.fold_in(*rated[0])
        return
    newcomers = np.empty_like(scores)
    for row, (items, ratings) in zip(newcomers, rated, strict=True):
        row[:] = model.fold_in(items, ratings)
        row[items] = -np.inf
    assert (newcomers.argmax(axis=1) == board.wanted).sum() >= least


# --- What goes wrong ---------------------------------------------------------------------------------------


def dropped_last(name: str, **options: Any) -> tuple[Finished, Mapping[str, np.ndarray]]:
    """A run whose last party never answers, and what it had before the first round."""
    last, before = ratings_for(name).last, dict[str, np.ndarray]()

    def prepare(state: Any, private: Any) -> Any:
        for field in SYSTEMS[name].private_arrays:
            array = getattr(private, field)
            if len(array) == last + 1:
                before[field] = array[last].copy()
        return state

    finished = small(name, losses=lambda _round, _request, to: to == last, prepare=prepare, **options)
    return finished, before


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_dropped_client_is_survived(name: str, threads: int) -> None:
    """Nothing of it is sent, and what it has stays as it was."""
    ratings = ratings_for(name)
    last = ratings.last
    dropped, before = dropped_last(name, who_denoises=[0, 1, 2], threads=threads)
    assert last not in {int(number) for sent in dropped.transcript.recorded for number in sent.numbers}
    for field, row in before.items():
        np.testing.assert_array_equal(getattr(dropped.private, field)[last], row)
    assert np.isfinite(scores_of(dropped, ratings, ratings.without_the_last().num_users)).all()
    for field, array in dropped.model_arrays().items():
        first = dropped.model_arrays(0)[field]
        assert array.shape != first.shape or (array != first).any(), "the others go on"


@pytest.mark.parametrize("name", [name for name in SEVERAL if name not in ("average", *COUNTS_CLIENTS)])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_dropped_client_equals_one_that_never_took_part(name: str, threads: int) -> None:
    """The last client never answers. Draws are keyed by client, so the others do what they do without it."""
    # With private set intersection, vectors start from tokens that all partners, and so other ones, have blinded.
    own = settings_of(name, {"clients_per_step": 0, "alignment": "keyed-hash"})
    options = {"who_denoises": [0, 1, 2], "threads": threads, **own}
    dropped, _ = dropped_last(name, **options)
    fewer = ratings_for(name).without_the_last()
    without = small(name, fewer, **options)
    if SYSTEMS[name].parties == "partners":
        for field in SYSTEMS[name].private_arrays:
            array = getattr(without.private, field)
            np.testing.assert_array_equal(getattr(dropped.private, field)[: len(array)], array)
        return
    np.testing.assert_array_equal(dropped.item_factors, without.item_factors)
    np.testing.assert_array_equal(dropped.user_factors[: fewer.num_users], without.user_factors)


@pytest.mark.parametrize("name", COMES_BACK)
def test_a_client_that_comes_back_is_taken_in_again(name: str) -> None:
    """Lost in round 1 (if only that one asks) or 2 of 4, it ends elsewhere than one that was never lost."""
    lost_in = 1 if name in ASK_ONCE else 2
    last = some_ratings().num_users - 1
    finished = small(
        name, losses=lambda number, _request, to: (to == last) & (number == lost_in), who_denoises=[0, 1, 2]
    )
    undisturbed = small(name, who_denoises=[0, 1, 2])
    for field, array in finished.model_arrays().items():
        assert np.isfinite(array).all()
        assert (array != undisturbed.model_arrays()[field]).any()
    answered = {sent.round_number for sent in finished.transcript.recorded if last in sent.numbers}
    assert answered == (set() if name in ASK_ONCE else {1, 3, 4})
    if hasattr(finished.states[-1], "counted_round"):
        assert finished.states[-1].counted_round[last] == 4


@pytest.mark.parametrize("name", ASK_AGAIN)
def test_a_round_without_anyone_changes_nothing(name: str) -> None:
    finished = small(name, losses=lambda number, _request, to: (to >= 0) & (number == 3))
    for field, array in finished.model_arrays(3).items():
        np.testing.assert_array_equal(array, finished.model_arrays(2)[field])
        assert (finished.model_arrays(4)[field] != array).any()


@pytest.mark.parametrize("name", ASK_ONCE)
def test_a_server_without_any_data_is_refused_in_one_line(name: str) -> None:
    what = "ratings" if name in EXPLICIT else "items"
    with pytest.raises(HushrecError, match=rf"\Ano client handed over its {what}; there is nothing to train on\Z"):
        small(name, losses=lambda _number, _request, to: to >= 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cohort_size", [1, None])
def test_asked_twice_a_client_gives_the_same_reply_and_trains_once(name: str, cohort_size: int | None) -> None:
    """As after a lost reply: every ask of the run comes twice, and only the second reply is heard."""

    def twice(handler: Handler) -> Handler:
        def handle(cohort: Cohort[Any], request: Any, config: Any, draws: Any) -> Reply:
            first = handler(cohort, request, config, draws)
            kept = [(kind.name, _copy(getattr(first.message, kind.name))) for kind in first.message.kinds()]
            again = handler(cohort, request, config, draws)
            assert_equal_messages(again.message, replace(first.message, **dict(kept)))
            return again

        return handle

    def change(system: System[Any, Any, Any]) -> System[Any, Any, Any]:
        return replace(system, handlers={kind: twice(one) for kind, one in system.handlers.items()})

    once, again = small(name, cohort_size=cohort_size), small(name, cohort_size=cohort_size, change=change)
    assert_same(again, once)
    assert digest(again) == digest(once)


def _copy(column: Any) -> Any:
    return replace(column, values=column.values.copy()) if hasattr(column, "values") else column.copy()


def test_pmf_is_content_with_one_client() -> None:
    """All but client 5 are lost: only what it rated moves."""
    finished, rows = small("pmf", losses=lambda _number, _request, to: to != 5), some_ratings().rows
    is_moved = (finished.item_factors != finished.states[0].item_factors).any(axis=1)
    assert np.flatnonzero(is_moved).tolist() == rows.items[rows.starts[5] : rows.starts[6]].tolist()


@pytest.mark.parametrize("name", [name for name in LEARNS if name in EXPLICIT])
@pytest.mark.parametrize("threads", [1, 2])
def test_divergence_names_round_client_and_remedy(name: str, threads: int) -> None:
    """The model is named where one side has all of it; a partner's mail does not tell who it is from."""
    who = (
        "model"
        if name == "neucf"
        else "gradient( of the layers)?"
        if name == "fedcore"
        else r"update of client \d+"
    )
    remedy = rf"round \d+: (the|a) {who} is not finite.* use a --learning-rate below 1000$"
    with pytest.raises(DivergedError, match=remedy):
        small(name, learning_rate=1000.0, decay=1.0, num_rounds=30, threads=threads)


@pytest.mark.parametrize(
    ("name", "rate"),
    # FCF's clients solve for their vectors whatever the scale of V: nothing grows without end.
    [(name, rate) for name in IMPLICIT if name != "fcf" for rate in learning_rates(name)],
)
def test_divergence_of_implicit_systems_is_refused_in_one_line(name: str, rate: str) -> None:
    """In a run, which measures after every round."""
    data, system = synthetic(24, 30, 200), SYSTEMS[name]
    config = system.configure(
        {**SMALL[name], **settings_of(name, {"num_factors": 5}), "num_rounds": 4, rate: 1e38}
    )
    with pytest.raises(HushrecError, match=r"\Around \d+: .*use .*learning.rate below 1e\+38.*\Z"):
        run_experiment(system, config, data, settings_for(system), RuntimeOptions(threads=1))

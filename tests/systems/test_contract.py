"""What every system owes, whatever it does."""

import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hushrec.systems
from hushrec import settings
from hushrec.data.interactions import UserRows
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import DivergedError
from hushrec.privacy.sealing import SEAL_BYTES
from hushrec.protocol import Message
from hushrec.runtime.wire import code_of, decode
from hushrec.systems import SYSTEMS, system_named

from .runs import SMALL, Finished, Ratings, assert_same, digest, frames, run, some_ratings, table

NAMES = list(SYSTEMS)

LEARNING: dict[str, dict[str, Any]] = {
    "pmf": {"learning_rate": 0.3, "decay": 1.0},
    "fedrec": {"learning_rate": 0.3, "decay": 1.0, "rho": 1},
    "fedrec++": {"learning_rate": 0.3, "decay": 1.0, "rho": 1, "denoisers": 3},
    "sdcf": {"learning_rate": 0.01, "decay": 1.0},
    "sdcf-denoised": {"learning_rate": 0.01, "decay": 1.0, "denoisers": 3},
}
"""Settings with which a small table is learned."""


def small(name: str, ratings: Ratings | None = None, **options: Any) -> Finished:
    return run(name, ratings or some_ratings(), **{**SMALL.get(name, {}), **options})


# --- The registry ------------------------------------------------------------------------------------------


def test_registry_is_the_files_of_the_folder() -> None:
    folder = Path(hushrec.systems.__file__).parent
    stems = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    in_files = {stem: importlib.import_module(f"hushrec.systems.{stem}").SYSTEM for stem in stems}
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
        assert "item_factors" in system.model_arrays

    def test_config_round_trips(self, name: str) -> None:
        config_type = SYSTEMS[name].config
        config = settings.build(config_type, {**SMALL.get(name, {}), "num_rounds": 7, "learning_rate": 0.125})
        values = settings.to_dict(config)
        assert settings.build(config_type, values) == config
        assert settings.build(config_type, json.loads(json.dumps(values))) == config
        assert msgspec.json.decode(msgspec.json.encode(config), type=config_type) == config
        text = "".join(f"{field} = {json.dumps(value)}\n" for field, value in values.items())
        assert settings.build(config_type, tomllib.loads(text)) == config
        assert msgspec.toml.decode(text, type=config_type) == config
        assert config != config_type()

    def test_unknown_setting_is_an_error_with_a_hint(self, name: str) -> None:
        with pytest.raises(HushrecError, match="unknown setting learning_rates; did you mean learning_rate"):
            settings.build(SYSTEMS[name].config, {"learning_rates": 0.1})
        with pytest.raises(HushrecError, match=r"unknown setting zzz; known: .*num_rounds"):
            settings.build(SYSTEMS[name].config, {"zzz": 0.1})

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("num_factors", 0),
            ("num_rounds", 0),
            ("learning_rate", 0.0),
            ("learning_rate", -1.0),
            ("decay", 0.0),
            ("decay", 1.5),
            ("learning_rate", "fast"),
            ("num_factors", 2.5),
        ],
    )
    def test_impossible_settings_are_refused(self, name: str, setting: str, value: object) -> None:
        with pytest.raises(HushrecError, match=f"--{setting.replace('_', '-')}|bad setting: .*{setting}"):
            settings.build(SYSTEMS[name].config, {setting: value})

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


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_another_run(name: str) -> None:
    one, other = small(name, seed=0), small(name, seed=1)
    assert (one.item_factors != other.item_factors).any(axis=1).all()
    assert (one.user_factors != other.user_factors).any(axis=1).all()


@pytest.mark.parametrize("name", NAMES)
def test_private_state_of_the_caller_is_not_touched(name: str) -> None:
    """The ratings of two runs that share them stay as they were."""
    ratings = some_ratings()
    before = (ratings.rows.items.copy(), ratings.rows.ratings.copy())
    small(name, ratings)
    np.testing.assert_array_equal(ratings.rows.items, before[0])
    np.testing.assert_array_equal(ratings.rows.ratings, before[1])


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cohort_size", [1, 7, None])
def test_messages_survive_the_wire_and_bytes_are_counted_exactly(name: str, cohort_size: int | None) -> None:
    finished = small(name, cohort_size=cohort_size)
    sizes: dict[tuple[int, type[Message]], list[int]] = {}
    for (round_number, _, party), sent, frame in frames(finished):
        decoded = decode(frame, SYSTEMS[name].messages)
        assert_equal_messages(decoded.message, sent.message)
        assert decoded.round_number == round_number
        is_mail = sent.addressees is not None
        assert is_mail or decoded.numbers.tolist() == [party]
        size = len(frame) + (SEAL_BYTES if is_mail else 0)
        sizes.setdefault((round_number, type(sent.message)), []).append(size)
    tallies = finished.transcript.tallies
    assert {key: (len(one), sum(one)) for key, one in sizes.items()} == {
        key: (tally.messages, tally.payload_bytes) for key, tally in tallies.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_only_declared_messages_are_sent_and_all_of_them(name: str) -> None:
    sent = {type(one.message) for one in small(name).transcript.recorded}
    assert sent == set(SYSTEMS[name].messages)


@pytest.mark.parametrize("name", NAMES)
def test_ragged_columns_of_a_message_are_parallel(name: str) -> None:
    for sent in small(name).transcript.recorded:
        columns = [getattr(sent.message, kind.name) for kind in sent.message.kinds() if kind.layout == "ragged"]
        for column in columns:
            np.testing.assert_array_equal(column.starts, columns[0].starts)
            assert len(column) == len(sent.numbers)


# --- What is learned ---------------------------------------------------------------------------------------


def checkerboard(num_users: int = 40, num_items: int = 20) -> tuple[Ratings, np.ndarray]:
    """Even users like even items, odd users odd ones: 5 or 1 points. Of each user one liked item and three others
    are withheld.
    """
    draws, rated, withheld = np.random.default_rng(0), [], []
    for user in range(num_users):
        liked = np.arange(user % 2, num_items, 2)
        others = np.arange(1 - user % 2, num_items, 2)
        wanted = int(draws.choice(liked))
        hidden = {wanted, *draws.choice(others, 3, replace=False).tolist()}
        rated.append(
            {item: 5.0 if item % 2 == user % 2 else 1.0 for item in range(num_items) if item not in hidden}
        )
        withheld.append(wanted)
    return table(rated, num_items), np.array(withheld)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_checkerboards_withheld_item_is_ranked_first(name: str) -> None:
    """By chance a user's first of 4 is the right one with 1/4; here all 40 are. Newcomers are served as well."""
    ratings, withheld = checkerboard()
    finished = run(name, ratings, num_rounds=60, **LEARNING.get(name, {}))
    assert np.isfinite(finished.user_factors).all()
    rows: UserRows = ratings.rows
    scores = finished.user_factors @ finished.item_factors.T
    system, config = SYSTEMS[name], settings.build(SYSTEMS[name].config, LEARNING.get(name, {}))
    model = system.model(finished.states[-1], finished.private, config, (1.0, 5.0))
    newcomers = np.empty_like(scores)
    for user in range(ratings.num_users):
        mine = slice(rows.starts[user], rows.starts[user + 1])
        newcomers[user] = model.fold_in(rows.items[mine], rows.ratings[mine])
        scores[user, rows.items[mine]] = newcomers[user, rows.items[mine]] = -np.inf
    np.testing.assert_array_equal(scores.argmax(axis=1), withheld)
    np.testing.assert_array_equal(newcomers.argmax(axis=1), withheld)


# --- What goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_dropped_client_equals_one_that_never_took_part(name: str, threads: int) -> None:
    """The last client never answers. Draws are keyed by client, so the others do what they do without it."""
    ratings, last = some_ratings(), some_ratings().num_users - 1
    options = {"who_denoises": [0, 1, 2], "threads": threads}
    dropped = small(name, ratings, losses=lambda _round, _request, to: to == last, **options)
    without = small(name, ratings.without_the_last(), **options)
    np.testing.assert_array_equal(dropped.item_factors, without.item_factors)
    np.testing.assert_array_equal(dropped.user_factors[:last], without.user_factors)
    alone = (
        small(name, ratings, losses=lambda _round, _request, to: to >= 0, num_rounds=1) if name != "pmf" else None
    )
    if alone is not None:
        np.testing.assert_array_equal(dropped.user_factors[last], alone.user_factors[last])
    assert last not in {int(number) for sent in dropped.transcript.recorded for number in sent.numbers}


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_comes_back_is_taken_in_again(name: str) -> None:
    """Lost in round 1 (all that PMF asks) or 2 of 4, it ends elsewhere than one that was never lost."""
    lost_in = 1 if name == "pmf" else 2
    last = some_ratings().num_users - 1
    finished = small(
        name, losses=lambda number, _request, to: (to == last) & (number == lost_in), who_denoises=[0, 1, 2]
    )
    undisturbed = small(name, who_denoises=[0, 1, 2])
    assert np.isfinite(finished.item_factors).all()
    assert (finished.item_factors != undisturbed.item_factors).any()
    if name != "pmf":
        assert finished.states[-1].counted_round[last] == 4


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pmf"])
def test_a_round_without_anyone_changes_nothing(name: str) -> None:
    finished = small(name, losses=lambda number, _request, to: (to >= 0) & (number == 3))
    np.testing.assert_array_equal(finished.states[3].item_factors, finished.states[2].item_factors)
    assert (finished.states[4].item_factors != finished.states[3].item_factors).any()


def test_pmf_without_anyone_is_refused_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Ano client handed over its ratings; there is nothing to train on\Z"):
        small("pmf", losses=lambda _number, _request, to: to >= 0)


def test_pmf_is_content_with_one_client() -> None:
    """All but client 5 are lost: only what it rated moves."""
    finished, rows = small("pmf", losses=lambda _number, _request, to: to != 5), some_ratings().rows
    is_moved = (finished.item_factors != finished.states[0].item_factors).any(axis=1)
    assert np.flatnonzero(is_moved).tolist() == rows.items[rows.starts[5] : rows.starts[6]].tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_divergence_names_round_client_and_remedy(name: str, threads: int) -> None:
    remedy = r"round \d+: the update of client \d+ is not finite .* use a --learning-rate below 1000$"
    with pytest.raises(DivergedError, match=remedy):
        small(name, learning_rate=1000.0, decay=1.0, num_rounds=30, threads=threads)

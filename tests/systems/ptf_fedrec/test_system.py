"""PTF-FedRec: what travels, what clients show, what the server tells, presets."""

import hashlib
from dataclasses import asdict, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec import settings
from hushrec.errors import HushrecError
from hushrec.models import server_model as server_model_module
from hushrec.protocol import AnySystem, FieldKind, Handler, Message, Role
from hushrec.registry import SYSTEMS
from hushrec.systems.ptf_fedrec.client_slots import own_slots
from hushrec.systems.ptf_fedrec.clients import LocalModel
from hushrec.systems.ptf_fedrec.messages import Predictions, Told
from hushrec.systems.ptf_fedrec.server_state import ServerState
from hushrec.systems.ptf_fedrec.system import RELEASED, Config
from hushrec.testing.board import checkerboard
from systems.runs import SMALL, Finished, Ratings, assert_same, losing, run, some_ratings

SYSTEM: AnySystem = SYSTEMS["ptf-fedrec"]
MODELS = ("neumf", "ngcf", "lightgcn")


def fit(ratings: Ratings | None = None, **values: Any) -> Finished:
    return run("ptf-fedrec", ratings or some_ratings(), **{**SMALL["ptf-fedrec"], **values})


def by_client(finished: Finished, kind: type[Message], round_number: int) -> dict[int, tuple[np.ndarray, ...]]:
    """Items and scores that each client sent or got in a round."""
    found = {}
    for sent in finished.sent(kind, round_number):
        for place, number in enumerate(sent.numbers.tolist()):
            one = sent.message.part(place, place + 1)
            found[number] = one.items.values, one.scores.values
    return found


def positives(ratings: Ratings, client: int) -> set[int]:
    rows = ratings.rows
    return set(rows.items[rows.starts[client] : rows.starts[client + 1]].tolist())


# --- What travels ------------------------------------------------------------------------------------------


def test_nothing_travels_but_items_and_scores_of_each_client() -> None:
    """No field is the same for all, no row has more than one number, and there is no mail between clients."""
    assert SYSTEM.messages == (Told, Predictions)
    assert [(kind.sender, kind.receiver) for kind in SYSTEM.messages] == [
        (Role.SERVER, Role.CLIENT),
        (Role.CLIENT, Role.SERVER),
    ]
    for message in SYSTEM.messages:
        assert message.kinds() == (
            FieldKind("items", "ragged", np.dtype(np.int32), 1, 0, None),
            FieldKind("scores", "ragged", np.dtype(np.float32), 1, 0, 1),
        )
    assert not SYSTEM.inboxes
    assert not SYSTEM.about.hands_over_data


@pytest.mark.parametrize("defense", ["none", "ldp", "sampling", "sampling+swapping"])
def test_what_travels_is_in_range(defense: str) -> None:
    for sent in fit(defense=defense, laplace_scale=2.0).transcript.recorded:
        items, scores = sent.message.items.values, sent.message.scores.values
        assert ((items >= 0) & (items < 30)).all()
        assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.parametrize(
    ("rounding", "digest", "means"),
    [
        ("down", "b535e711898e1ad7bcaa5677b9fa13f54195f37a71a83914d4d64d427d2eee72", (0.4543, 0.5679)),
        ("chance", "6c41a5127fa7fe8ef1330285438a38035dc2959e27a7745f851e1d27876ca8f7", (0.4543, 0.5679)),
    ],
)
def test_golden_items(rounding: str, digest: str, means: tuple[float, float]) -> None:
    """Which items are listed, in both ways; scores to rounding, because the server's go through a BLAS."""
    finished, total = fit(server_model="neumf", swap_rounding=rounding), hashlib.sha256()
    for round_number, kind in product((1, 2, 3, 4), SYSTEM.messages):
        for number, (items, _) in sorted(by_client(finished, kind, round_number).items()):
            total.update(f"{round_number} {kind.__name__} {number} {items.tolist()}\n".encode())
    shown = np.concatenate([scores for _, scores in by_client(finished, Predictions, 4).values()])
    told = np.concatenate([scores for _, scores in by_client(finished, Told, 4).values()])
    assert (shown.mean(), told.mean()) == pytest.approx(means, abs=1e-3)
    assert total.hexdigest() == digest


# --- What clients show -------------------------------------------------------------------------------------


def num_negatives(num_positives: int) -> int:
    """Drawn at enrolment: 4 for each positive, as far as there are others among 30 items."""
    return min(4 * num_positives, 30 - num_positives)


@pytest.mark.parametrize("defense", ["none", "ldp"])
def test_without_sampling_all_own_samples_are_shown(defense: str) -> None:
    ratings, finished = some_ratings(), fit(defense=defense, num_rounds=3)
    for round_number in (1, 2, 3):
        for client, (items, _) in by_client(finished, Predictions, round_number).items():
            own = positives(ratings, client)
            assert own <= set(items.tolist())
            assert len(items) == len(own) + num_negatives(len(own))


@pytest.mark.parametrize("defense", ["none", "ldp"])
def test_without_sampling_told_items_may_be_shown_as_well(defense: str) -> None:
    """All positives, and as many others as a client has negatives, of its negatives and what it was told."""
    ratings, finished = some_ratings(), fit(defense=defense, unsampled="trained", num_negatives=1, num_rounds=3)
    own_negatives = {
        client: set(items.tolist()) for client, (items, _) in by_client(finished, Predictions, 1).items()
    }
    num_told = 0
    for round_number in (1, 2, 3):
        told = by_client(finished, Told, round_number)
        for client, (items, _) in by_client(finished, Predictions, round_number).items():
            own, others = positives(ratings, client), set(items.tolist()) - positives(ratings, client)
            assert own <= set(items.tolist())
            assert len(items) == len(own) + min(len(own), 30 - len(own))
            assert others <= own_negatives[client] | set(told[client][0].tolist())
            num_told += len(others - own_negatives[client])
    assert num_told > 0


def test_showing_told_items_is_without_effect_where_samples_are_drawn() -> None:
    assert_same(fit(unsampled="trained"), fit())


def test_negatives_are_drawn_once_or_anew_in_each_round() -> None:
    """Without a defence all own samples are shown."""
    ratings = some_ratings()
    client = min(range(24), key=lambda one: len(positives(ratings, one)))  # has most others to choose from
    for negatives, num_lists in (("once", 1), ("rounds", 4)):
        finished = fit(defense="none", negatives=negatives)
        shown = [tuple(by_client(finished, Predictions, number)[client][0].tolist()) for number in (1, 2, 3, 4)]
        assert len(set(shown)) == num_lists
        assert all(positives(ratings, client) <= set(items) for items in shown)
        assert len({len(items) for items in shown}) == 1
    assert_same(
        fit(negatives="rounds", cohort_size=1, memory="accumulate"),
        fit(negatives="rounds", cohort_size=7, threads=2, memory="accumulate"),
    )


def test_without_a_defence_scores_are_the_clients_own() -> None:
    """The model of the last round is still there. Laplace noise changes nearly all of them."""
    plain, noisy = (fit(defense=defense, num_rounds=2) for defense in ("none", "ldp"))
    own: LocalModel = SYSTEM.result.party(plain.private, plain.config, None)
    for client, (items, scores) in by_client(plain, Predictions, 2).items():
        users = np.full(len(items), client, np.int32)
        np.testing.assert_allclose(scores, own.predict(users, items), rtol=1e-5)
        assert (
            by_client(noisy, Predictions, 1)[client][1] != by_client(plain, Predictions, 1)[client][1]
        ).mean() > 0.9
    np.testing.assert_array_equal(own_slots(plain.private, np.arange(24)).lengths, plain.private.num_own_samples)


@pytest.mark.parametrize(("beta", "gamma"), [(0.5, 2.0), (1.0, 1.0), (0.1, 4.0), (0.3, 0.5)])
def test_a_sample_has_beta_of_the_positives_and_gamma_times_as_many_others(beta: float, gamma: float) -> None:
    values = {"least_beta": beta, "most_beta": beta, "least_gamma": gamma, "most_gamma": gamma}
    ratings, finished = some_ratings(), fit(defense="sampling", num_told=0, num_rounds=2, **values)
    for round_number in (1, 2):
        for client, (items, _) in by_client(finished, Predictions, round_number).items():
            own = positives(ratings, client)
            num_shown = max(int(beta * len(own)), 1)
            assert len(own & set(items.tolist())) == num_shown
            most = num_negatives(len(own))
            assert len(set(items.tolist()) - own) == min(max(int(gamma * num_shown), 1), most)


def test_uploads_once_are_the_same_items_in_every_round() -> None:
    """Own samples only: what the server tells is never among them unless it was drawn by the client before."""
    ratings = some_ratings()
    finished = fit(ratings, num_rounds=4, uploads="once")
    first = by_client(finished, Predictions, 1)
    for round_number in (2, 3, 4):
        for client, (items, _) in by_client(finished, Predictions, round_number).items():
            np.testing.assert_array_equal(items, first[client][0])
    anew = by_client(fit(ratings, num_rounds=4), Predictions, 2)
    assert any(anew[client][0].tolist() != items.tolist() for client, (items, _) in first.items())


def test_balanced_uploads_show_positives_and_negatives_equally_often() -> None:
    """Of 24 clients, 40 rounds: the mean share of rounds in which a positive is shown, less that of a negative.

    The share of one item has at most the deviation .5 / sqrt(40) = .079; of some 190 positives .006. |z| < 5.
    As published the difference is .2: a positive is shown in .55 of the rounds, a negative in about .34.
    """
    ratings = some_ratings(num_items=100)
    differences = []
    for uploads in ("balanced", "rounds"):
        finished = fit(ratings, num_rounds=40, uploads=uploads, local_epochs=1)
        own = {client: positives(ratings, client) for client in range(24)}
        shares: dict[bool, list[float]] = {True: [], False: []}
        for client in range(24):
            rounds = [by_client(finished, Predictions, one)[client][0] for one in range(1, 41)]
            counts = np.bincount(np.concatenate(rounds), minlength=100) / 40
            told = 0.1  # published uploads have told items too, each in few rounds
            for item in np.flatnonzero(counts > (0 if uploads == "balanced" else told)).tolist():
                shares[item in own[client]].append(counts[item])
        differences.append(float(np.mean(shares[True]) - np.mean(shares[False])))
    assert abs(differences[0]) < 5 * 0.006
    assert differences[1] > 0.15


def test_scores_may_be_rounded() -> None:
    """The items stay, as the model that the scores are of: in round 1 nothing else is different."""
    plain, few = fit(num_rounds=1), fit(num_rounds=1, score_levels=5)
    for client, (items, scores) in by_client(few, Predictions, 1).items():
        before = by_client(plain, Predictions, 1)[client]
        np.testing.assert_array_equal(items, before[0])
        np.testing.assert_array_equal(scores, np.rint(before[1] * 4) / 4)


@pytest.mark.parametrize("uploads", ["once", "balanced"])
def test_what_is_shown_does_not_depend_on_the_cohort(uploads: str) -> None:
    """A choice is a keyed draw from samples that a client keeps: the same however clients are taken together."""
    one, other = (fit(num_rounds=3, uploads=uploads, cohort_size=size) for size in (1, 24))
    for round_number in (1, 3):
        alone = by_client(one, Predictions, round_number)
        for client, (items, scores) in by_client(other, Predictions, round_number).items():
            np.testing.assert_array_equal(items, alone[client][0])
            np.testing.assert_array_equal(scores, alone[client][1])


@pytest.mark.parametrize("defense", ["none", "sampling+swapping"])
def test_items_are_listed_in_ascending_order(defense: str) -> None:
    """So that the order does not tell positives, which come first in a client's table, from others."""
    finished = fit(defense=defense)
    for round_number in (1, 4):
        for items, _ in by_client(finished, Predictions, round_number).values():
            assert (np.diff(items) > 0).all()


def test_swapping_changes_scores_but_not_items() -> None:
    """In round 1, before the server's answers differ. lambda = 0.1 of fewer than 20 positives is one pair."""
    ratings = some_ratings()
    plain, swapped = (
        fit(defense=defense, num_rounds=1, swap_rounding="down") for defense in ("sampling", "sampling+swapping")
    )
    for client, (items, scores) in by_client(plain, Predictions, 1).items():
        same_items, found = by_client(swapped, Predictions, 1)[client]
        np.testing.assert_array_equal(items, same_items)
        is_own = np.isin(items, list(positives(ratings, client)))
        high, low = (np.flatnonzero(kind)[scores[kind].argmax()] for kind in (is_own, ~is_own))
        expected = scores.copy()
        expected[[high, low]] = expected[[low, high]]
        np.testing.assert_array_equal(found, expected)


def test_the_scale_of_laplace_noise_is_the_settings() -> None:
    plain, faint, loud = (
        np.concatenate([scores for _, scores in by_client(finished, Predictions, 1).values()])
        for finished in (
            fit(defense="none", num_rounds=1),
            fit(defense="ldp", laplace_scale=1e-4, num_rounds=1),
            fit(defense="ldp", laplace_scale=0.1, num_rounds=1),
        )
    )
    assert 0 < abs(faint - plain).mean() < 2e-4
    assert 0.05 < abs(loud - plain).mean() < 0.15


# --- What the server does ----------------------------------------------------------------------------------


@pytest.mark.parametrize("server_model", MODELS)
def test_the_server_tells_its_scores_of_items_that_were_not_uploaded(server_model: str) -> None:
    finished = fit(server_model=server_model)
    assert all(len(items) == 0 for items, _ in by_client(finished, Told, 1).values())
    for round_number in (2, 3, 4):
        before = SYSTEM.result.whole(finished.states[round_number - 1], None, finished.config, None)
        uploaded = by_client(finished, Predictions, round_number - 1)
        for client, (items, scores) in by_client(finished, Told, round_number).items():
            assert len(items) == len(set(items.tolist())) == min(6, 30 - len(uploaded[client][0]))
            assert not set(items.tolist()) & set(uploaded[client][0].tolist())
            users = np.full(len(items), client, np.int32)
            np.testing.assert_allclose(scores, before.predict(users, items), rtol=1e-4)


def test_the_server_counts_updates_and_keeps_the_last_uploads() -> None:
    finished, counts = fit(), np.zeros(30, np.int64)
    for round_number in (1, 2, 3, 4):
        uploads = by_client(finished, Predictions, round_number)
        state: ServerState = finished.states[round_number]
        for items, _ in uploads.values():
            counts += np.bincount(items, minlength=30)
        np.testing.assert_array_equal(state.num_updates, counts)
        for client, (items, scores) in uploads.items():
            kept = state.last_uploads
            np.testing.assert_array_equal(kept.items.part(client, client + 1).values, items)
            np.testing.assert_array_equal(kept.scores.part(client, client + 1).values, scores)


def test_who_sits_out_a_round_keeps_its_edges_and_its_model() -> None:
    finished = fit(participation=0.5)
    for round_number in (1, 2, 3, 4):
        came = set(by_client(finished, Predictions, round_number))
        assert len(came) == 12
        before, after = (finished.states[at].last_uploads.items for at in (round_number - 1, round_number))
        for client in set(range(24)) - came:
            np.testing.assert_array_equal(
                after.part(client, client + 1).values, before.part(client, client + 1).values
            )
    last = {n: max(r for r in (1, 2, 3, 4) if n in by_client(finished, Predictions, r)) for n in range(24)
            if any(n in by_client(finished, Predictions, r) for r in (1, 2, 3, 4))}  # fmt: skip
    assert finished.private.trained_round.tolist() == [last.get(number, 0) for number in range(24)]


def test_a_client_that_missed_a_round_is_told_by_its_last_upload() -> None:
    finished = fit(losses=losing((2, None, 3)))
    assert 3 not in by_client(finished, Predictions, 2)
    uploaded = set(by_client(finished, Predictions, 1)[3][0].tolist())
    told = set(by_client(finished, Told, 3)[3][0].tolist())
    assert told
    assert not told & uploaded


def test_who_has_not_uploaded_yet_is_told_nothing() -> None:
    finished, seen = fit(participation=0.5), set[int]()
    for round_number in (1, 2, 3, 4):
        for client, (items, _) in by_client(finished, Told, round_number).items():
            assert (len(items) > 0) == (client in seen)
        seen |= set(by_client(finished, Predictions, round_number))
    assert len(seen) > 12, "somebody came later"


def test_more_items_than_there_are_can_be_asked_for() -> None:
    """All that were not uploaded are told."""
    finished = fit(num_told=2_000_000_000, num_rounds=2)
    uploaded = by_client(finished, Predictions, 1)
    for client, (items, _) in by_client(finished, Told, 2).items():
        assert set(items.tolist()) == set(range(30)) - set(uploaded[client][0].tolist())


@pytest.mark.parametrize("server_model", ["ngcf", "lightgcn"])
def test_the_servers_graph_has_the_last_upload_of_each_client_with_its_scores(
    server_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, train = [], server_model_module.train

    def looking(learned: Any, how: Any, sizes: Any, samples: Any, graph: Any, *rest: Any) -> Any:
        graphs.append(graph)
        return train(learned, how, sizes, samples, graph, *rest)

    monkeypatch.setattr(server_model_module, "train", looking)
    finished = fit(server_model=server_model, participation=0.5)
    expected: dict[int, tuple[np.ndarray, ...]] = {}
    for round_number, graph in enumerate(graphs, 1):
        expected |= by_client(finished, Predictions, round_number)
        order = sorted(expected)
        np.testing.assert_array_equal(graph.users, np.repeat(order, [len(expected[n][0]) for n in order]))
        np.testing.assert_array_equal(graph.items, np.concatenate([expected[n][0] for n in order]))
        np.testing.assert_array_equal(graph.labels, np.concatenate([expected[n][1] for n in order]))
    state, users = finished.states[-1], np.arange(24, dtype=np.int32)
    flat = replace(state, shown_scores=np.ones_like(state.shown_scores))
    with_scores, without = (SYSTEM.result.server(one, finished.config, None).score(users) for one in (state, flat))
    assert abs(with_scores - without).max() > 1e-4


def test_with_no_item_told_clients_train_alone() -> None:
    """So that the server's model is without effect on them."""
    one, other = (fit(num_told=0, server_model=model) for model in ("neumf", "lightgcn"))
    np.testing.assert_array_equal(one.private.weights, other.private.weights)
    assert one.transcript.total(Told).rows == 0


# --- What clients make of what they are told ---------------------------------------------------------------


def test_what_was_told_is_replaced_or_kept() -> None:
    """A client never trains its own positives with the server's scores."""
    ratings = some_ratings()
    replaced, kept = (fit(memory=memory) for memory in ("replace", "accumulate"))
    for finished, rounds in ((replaced, (4,)), (kept, (2, 3, 4))):
        for client in range(24):
            own = positives(ratings, client)
            taken = [
                int(item)
                for at in rounds
                for item in by_client(finished, Told, at)[client][0]
                if int(item) not in own
            ]
            num_own = int(finished.private.num_own_samples[client])
            num_more = int(finished.private.num_samples[client]) - num_own
            assert num_more == len(taken)
            first = finished.private.sample_starts[client] + num_own
            slots = finished.private.sample_slots[first : first + num_more]
            found = finished.private.slot_items[finished.private.starts[client] + slots]
            assert found.tolist() == taken


def test_a_client_may_drop_what_exceeds_its_positives() -> None:
    ratings, finished = some_ratings(), fit(told_limit="positives", num_told=20, dispersal="hard")
    for client in range(24):
        own = positives(ratings, client)
        told = by_client(finished, Told, 4)[client][0].tolist()
        first = [item for item in told[: len(own)] if item not in own]
        num_more = int(finished.private.num_samples[client] - finished.private.num_own_samples[client])
        assert num_more == len(first)


# --- All combinations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client_model", "server_model"), list(product(MODELS, MODELS)))
def test_every_combination_of_models_runs(client_model: str, server_model: str) -> None:
    """And what clients upload depends on their own model, what they are told on the server's."""
    values = {"client_model": client_model, "server_model": server_model, "client_graph_layers": 2}
    finished, users = fit(num_rounds=2, server_graph_layers=2, **values), np.arange(24, dtype=np.int32)
    own = SYSTEM.result.party(finished.private, finished.config, None)
    for scores in (finished.scorer.score(users), own.score(users)):
        assert scores.shape == (24, 30)
        assert ((scores > 0) & (scores < 1)).all()
        assert scores.std() > 1e-4
    more = {
        name: model(finished.states[-1], finished.private, finished.config)
        for name, model in SYSTEM.result.also.items()
    }
    assert set(more) == {"client", "ensemble"}
    np.testing.assert_array_equal(more["client"].score(users), own.score(users))


@pytest.mark.parametrize(("server_model", "server_head"), [("neumf", "product"), ("lightgcn", "mlp")])
@pytest.mark.parametrize("layers", [(5,), (6, 4, 3)])
def test_dense_layers_may_be_any_number(layers: tuple[int, ...], server_model: str, server_head: str) -> None:
    """As many weights as these layers have, on both sides."""
    values = {"server_model": server_model, "server_head": server_head, "num_rounds": 2}
    finished = fit(client_layers=layers, server_layers=layers, **values)
    num_weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise((8, *layers, 1)))
    assert finished.private.weights.shape[1] == 4 + num_weights
    assert finished.states[-1].parameters.size == (24 + 30) * 4 + num_weights
    scores = finished.scorer.score(np.arange(24, dtype=np.int32))
    assert scores.std() > 1e-4


@pytest.mark.parametrize("server_model", ["neumf", "lightgcn"])
def test_other_servers_find_a_checkerboards_withheld_items_too(server_model: str) -> None:
    """Of 11 items each; by chance 4 of 40."""
    board = checkerboard(SYSTEM)
    ratings = Ratings(board.train.by_user(), board.train.num_items)
    finished = run("ptf-fedrec", ratings, **{**SYSTEM.about.learns_with, "server_model": server_model})
    assert 40 * board.ranked_first(finished.scorer.score(board.users)) >= 36


# --- Settings ----------------------------------------------------------------------------------------------


def test_the_released_preset_differs_where_the_spec_says() -> None:
    paper, released = (settings.to_dict(SYSTEM.configure({"preset": name})) for name in ("paper", "released"))
    assert list(SYSTEM.about.presets) == ["paper", "released", "fitted", "general"]
    assert {name: (paper[name], released[name]) for name in paper if paper[name] != released[name]} == {
        "client_factors": (32, 16),
        "client_learning_rate": (0.001, 0.01),
        "client_batch": (64, 256),
        "swap_rounding": ("chance", "down"),
        "repeats": ("no", "yes"),
        "memory": ("replace", "accumulate"),
        "told_limit": ("none", "positives"),
        "server_head": ("product", "mlp"),
        "unsampled": ("own", "trained"),
    }
    assert RELEASED.keys() == {name for name in paper if paper[name] != released[name]}


def test_the_fitted_preset_is_the_papers_with_the_clients_of_the_code() -> None:
    paper, fitted = (settings.to_dict(SYSTEM.configure({"preset": name})) for name in ("paper", "fitted"))
    assert {name: fitted[name] for name in paper if paper[name] != fitted[name]} == {
        "client_factors": 16,
        "client_learning_rate": 0.01,
        "client_batch": 256,
    }


def test_the_paper_preset_is_the_papers() -> None:
    values = settings.to_dict(Config())
    expected = {
        "client_model": "neumf", "client_factors": 32, "client_layers": [32, 16], "client_learning_rate": 0.001,
        "client_batch": 64, "local_epochs": 5, "server_factors": 32, "server_graph_layers": 3,
        "server_learning_rate": 0.001, "server_batch": 1024, "server_epochs": 2, "num_rounds": 20,
        "participation": 1.0, "num_negatives": 4, "least_beta": 0.1, "most_beta": 1.0, "least_gamma": 1.0,
        "most_gamma": 4.0, "swap_share": 0.1, "num_told": 30, "confident_share": 0.5,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected


def test_settings_reach_the_models() -> None:
    """Every one of a model's own settings comes from one of the system's, and none is fixed."""
    usual, other = Config(), Config(
        client_factors=5, client_layers=(7, 3), client_graph_layers=2, client_learning_rate=0.5, client_batch=9,
        local_epochs=4, server_factors=6, server_layers=(8, 2), server_graph_layers=1, server_head="mlp",
        message_dropout=0.25, server_learning_rate=0.75, server_batch=11, server_epochs=3, client_model="ngcf",
        server_model="lightgcn",
    )  # fmt: skip
    for one, two, same in (
        (usual.local_settings(), other.local_settings(), set()),
        (usual.server_settings(), other.server_settings(), {"loss", "start_scale"}),
    ):
        left, right = asdict(one), asdict(two)
        assert {name for name in left if left[name] == right[name]} == same


def test_a_preset_gives_way_to_what_is_said() -> None:
    model = hushrec.PTFFedRec(preset="released", server_model="lightgcn", client_factors=8)
    expected = {**RELEASED, "server_model": "lightgcn", "client_factors": 8}
    assert model.config == Config(**expected)
    assert hushrec.PTFFedRec().config == hushrec.PTFFedRec(preset="paper").config
    with pytest.raises(
        HushrecError, match=r"^no preset 'relased' of ptf-fedrec; choose from paper, released, fitted, general$"
    ):
        hushrec.PTFFedRec(preset="relased")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"least_beta": 0.0}, "least_beta="),
        ({"least_beta": 0.6, "most_beta": 0.5}, "most_beta="),
        ({"most_beta": 1.5}, "most_beta=1.5 is not in"),
        ({"least_gamma": 5.0}, "most_gamma="),
        ({"swap_share": 1.5}, "swap_share="),
        ({"confident_share": -0.5}, "confident_share="),
        ({"laplace_scale": 0.0}, "laplace_scale="),
        ({"message_dropout": 1.0}, "message_dropout="),
        ({"num_told": -1}, "num_told="),
        ({"num_negatives": 0}, "num_negatives="),
        ({"client_layers": (0, 3)}, "client_layers="),
        ({"client_layers": ()}, "client_layers= needs the width of one layer or more"),
        ({"server_layers": ()}, "server_layers= needs the width of one layer or more"),
        ({"server_layers": 3}, "bad setting"),
        ({"server_model": "mf"}, "bad setting"),
        ({"defense": "hope"}, "bad setting"),
        ({"score_levels": 1}, "score_levels=1 are no levels; use 0, or 2 and more"),
        ({"score_levels": -1}, "score_levels=-1 are no levels"),
        ({"uploads": "once", "negatives": "rounds"}, "uploads='once' draws from samples that stay"),
        ({"uploads": "balanced", "defense": "ldp"}, "uploads='balanced' draws from samples that stay"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        SYSTEM.configure(values)


def test_the_released_preset_runs_and_is_another_run() -> None:
    small = {**SMALL["ptf-fedrec"], "client_factors": 4, "client_learning_rate": 0.01}
    one, other = (run("ptf-fedrec", some_ratings(), preset=preset, **small) for preset in ("paper", "released"))
    assert (one.states[-1].parameters != other.states[-1].parameters).mean() > 0.5
    assert_same(one, fit())


def test_an_upload_of_an_unknown_item_is_refused_with_its_sender() -> None:
    def change(system: AnySystem) -> AnySystem:
        def handle(cohort: Any, request: Any, config: Any, draws: Any) -> Any:
            reply = system.handlers[Told].answer(cohort, request, config, draws)
            place = int(np.searchsorted(cohort.numbers, 5))
            items = reply.message.items.values.copy()
            items[reply.message.items.starts[place]] = 30
            wrong = replace(reply.message.items, values=items)
            return replace(reply, message=replace(reply.message, items=wrong))

        return replace(system, handlers={Told: Handler(handle)})

    with pytest.raises(HushrecError, match="client 5 lists an item that is not in the catalogue"):
        fit(change=change)


def test_nearly_all_messages_may_be_dropped() -> None:
    finished = fit(message_dropout=0.999999, num_rounds=1)
    assert np.isfinite(finished.scorer.score(np.arange(24, dtype=np.int32))).all()

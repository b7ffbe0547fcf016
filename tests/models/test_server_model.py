from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models.server_model import Learned, ModelSettings, Pairs, initial, scorer, train

torch = pytest.importorskip("torch")

from .test_networks import CASES, dense_graph, dense_logits, dense_outputs, doubles  # noqa: E402

SIZES = (12, 15)


def settings(model: str, head: str, **values: Any) -> ModelSettings:
    options = {"num_factors": 6, "layers": (6, 3), "epochs": 2, "batch_size": 16, "learning_rate": 0.01}
    return ModelSettings(model=model, head=head, **{**options, "loss": "sum", **values})


def pairs(num_pairs: int = 70, seed: int = 0) -> Pairs:
    """Scored pairs; the last user and the last item have none."""
    draws = np.random.default_rng(seed)
    users, items = (draws.integers(0, size - 1, num_pairs).astype(np.int32) for size in SIZES)
    return Pairs(users, items, draws.random(num_pairs).astype(np.float32))


def rounds(chosen: ModelSettings, first: int, last: int, start: Learned | None = None, seed: int = 0) -> Learned:
    learned = start or initial(chosen, *SIZES, Draws(seed))
    for number in range(first, last + 1):
        samples = pairs(seed=number)
        learned = train(learned, chosen, SIZES, samples, samples, number, Draws(seed))
    return learned


def assert_same(one: Learned, other: Learned) -> None:
    for ours, theirs in zip(astuple(one), astuple(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("model", "head"), CASES)
def test_same_seed_same_bits_and_another_seed_others(model: str, head: str) -> None:
    chosen = settings(model, head)
    assert_same(rounds(chosen, 1, 3), rounds(chosen, 1, 3))
    assert (rounds(chosen, 1, 1).parameters != rounds(chosen, 1, 1, seed=1).parameters).all()


@pytest.mark.parametrize(("model", "head"), CASES)
def test_training_resumed_from_arrays_equals_training_on(model: str, head: str) -> None:
    chosen = settings(model, head)
    halfway = rounds(chosen, 1, 2)
    before = [array.tobytes() for array in astuple(halfway)]
    restored = Learned(*(np.frombuffer(array, one.dtype).reshape(one.shape) for array, one in
                         zip(before, astuple(halfway), strict=True)))  # fmt: skip
    assert_same(rounds(chosen, 3, 4, restored), rounds(chosen, 1, 4))
    assert [array.tobytes() for array in astuple(halfway)] == before
    assert int(halfway.num_steps) == 2 * 2 * 5  # rounds, epochs, batches of 16 for 70 samples


@pytest.mark.parametrize("loss", ["sum", "mean"])
@pytest.mark.parametrize(("model", "head"), CASES)
def test_training_equals_dense_training_by_pytorch(model: str, head: str, loss: str) -> None:
    """Two rounds of two epochs in double precision, `torch.optim.Adam`, samples in the same order, no dropout."""
    chosen = settings(model, head, message_dropout=0.0, loss=loss)
    shape, start = chosen.shape(SIZES), initial(chosen, *SIZES, Draws(0))
    leaf, views = doubles(shape, start.parameters)
    optimizer = torch.optim.Adam([leaf], lr=chosen.learning_rate)
    for number in (1, 2):
        samples, order_draws = pairs(seed=number), Draws(0).generator("server-model-order", number)
        graph = dense_graph(astuple(samples), SIZES)
        for order in (order_draws.permutation(len(samples)) for _ in range(chosen.epochs)):
            for chunk in np.split(order, range(chosen.batch_size, len(order), chosen.batch_size)):
                users, items, labels = (torch.from_numpy(column[chunk]) for column in astuple(samples))
                outputs = dense_outputs(shape, views, graph=graph)
                logits = dense_logits(shape, views, outputs, users.long(), SIZES[0] + items.long())
                optimizer.zero_grad()
                torch.nn.functional.binary_cross_entropy(
                    torch.sigmoid(logits), labels.double(), reduction=loss
                ).backward(retain_graph=True)
                optimizer.step()
    ours, theirs = rounds(chosen, 1, 2).parameters, leaf.detach().numpy()
    assert np.abs(theirs - start.parameters).max() > 0.05
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize(("model", "head"), CASES)
def test_scores_of_all_items_equal_predictions(model: str, head: str) -> None:
    """Also for the user and the item without edges, in (0, 1)."""
    chosen = settings(model, head)
    scores = scorer(rounds(chosen, 1, 2), chosen, SIZES, pairs(seed=2))
    users = np.arange(SIZES[0], dtype=np.int32)
    table = scores.score(users)
    assert table.shape == SIZES
    assert ((table > 0) & (table < 1)).all()
    some_users, some_items = np.repeat(users, SIZES[1]), np.tile(np.arange(SIZES[1], dtype=np.int32), SIZES[0])
    np.testing.assert_allclose(scores.predict(some_users, some_items), table.ravel(), rtol=1e-5)
    np.testing.assert_allclose(scores.score(users[3:5]), table[3:5], rtol=1e-6)


@pytest.mark.parametrize(("model", "head"), CASES)
def test_a_planted_checkerboards_withheld_item_is_ranked_first(model: str, head: str) -> None:
    """Even users have even items, odd users odd ones, each but for one; nothing else has that parity."""
    num_users, num_items = 40, 20
    withheld = np.array([(user + 2 * (user // 2)) % num_items for user in range(num_users)])
    every = [(user, item) for user in range(num_users) for item in range(num_items) if item != withheld[user]]
    users, items = np.array(every, np.int32).T
    samples = Pairs(users, items, (users % 2 == items % 2).astype(np.float32))
    has = samples.labels == 1
    graph = Pairs(users[has], items[has], samples.labels[has])
    chosen, sizes = settings(model, head, layers=(6, 6), epochs=40, batch_size=32, learning_rate=0.02), (40, 20)
    learned = train(initial(chosen, *sizes, Draws(0)), chosen, sizes, samples, graph, 1, Draws(0))
    scores = scorer(learned, chosen, sizes, graph).score(np.arange(num_users, dtype=np.int32))
    scores[users[has], items[has]] = -1
    np.testing.assert_array_equal(scores.argmax(axis=1), withheld)


def test_start_is_drawn_as_stated() -> None:
    """400 users, 300 items, 32 factors. Kolmogorov-Smirnov, fixed seed, false-alarm rate 1e-6 each."""

    def vectors(model: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        chosen = settings(model, "mlp", num_factors=32)
        views = chosen.shape((400, 300)).views(initial(chosen, 400, 300, Draws(0)).parameters)
        return views["vectors"], views

    def uniform_within(block: np.ndarray, bound: float) -> bool:
        return stats.kstest(block.ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-6

    assert stats.kstest(vectors("neumf")[0].ravel(), "norm").pvalue > 1e-6
    assert stats.kstest(vectors("lightgcn")[0].ravel() / 0.1, "norm").pvalue > 1e-6
    both, views = vectors("ngcf")
    assert uniform_within(both[:400], np.sqrt(6 / 432))
    assert uniform_within(both[400:], np.sqrt(6 / 332))
    assert uniform_within(views["message-1-weight"], np.sqrt(6 / 64))
    assert uniform_within(views["message-1-bias"], np.sqrt(6 / 33))
    assert uniform_within(vectors("neumf")[1]["dense-0-weight"], 1 / 8)


def test_neumfs_vectors_start_at_the_scale_that_was_chosen() -> None:
    """The same draws, smaller; the layers stay as they are."""
    chosen = settings("neumf", "mlp")
    small = replace(chosen, start_scale=0.25)
    parameters = [initial(one, *SIZES, Draws(0)).parameters for one in (chosen, small)]
    usual, found = (chosen.shape(SIZES).views(one) for one in parameters)
    np.testing.assert_array_equal(found["vectors"], usual["vectors"] / 4)
    for name in usual.keys() - {"vectors"}:
        np.testing.assert_array_equal(found[name], usual[name])


def test_a_users_start_does_not_depend_on_those_after_it() -> None:
    chosen = settings("lightgcn", "product")
    more, fewer = initial(chosen, 9, 5, Draws(0)).parameters, initial(chosen, 8, 5, Draws(0)).parameters
    np.testing.assert_array_equal(more[: 8 * 6], fewer[: 8 * 6])
    np.testing.assert_array_equal(more[9 * 6 :], fewer[8 * 6 :])


def test_no_sample_changes_nothing() -> None:
    chosen, none = settings("ngcf", "product"), pairs(0)
    start = initial(chosen, *SIZES, Draws(0))
    assert_same(train(start, chosen, SIZES, none, none, 1, Draws(0)), start)
    assert np.isfinite(scorer(start, chosen, SIZES, none).score(np.array([0], np.int32))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": np.array([12], np.int32)}, "a pair has a user outside of 0..11; number them from 0"),
        ({"items": np.array([-1], np.int32)}, "a pair has a item outside of 0..14; number them from 0"),
        (
            {"labels": np.array([np.nan], np.float32)},
            "a pair has a score that is not a finite number; leave it out",
        ),
        ({"labels": np.empty(0, np.float32)}, "users, items and labels of pairs differ in number"),
    ],
)
def test_bad_pairs_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    chosen = settings("ngcf", "product")
    start, bad = initial(chosen, *SIZES, Draws(0)), replace(pairs(1), **change)
    with pytest.raises(HushrecError, match=message):
        train(start, chosen, SIZES, bad, pairs(), 1, Draws(0))
    with pytest.raises(HushrecError, match=message):
        scorer(start, chosen, SIZES, bad)


def test_errors_say_what_to_do() -> None:
    chosen = settings("ngcf", "product")
    start = initial(chosen, *SIZES, Draws(0))
    with pytest.raises(HushrecError, match="ngcf passes messages over a graph; give its edges"):
        train(start, chosen, SIZES, pairs(), None, 1, Draws(0))
    with pytest.raises(
        HushrecError, match=r"round 3: the server's model is not finite; use a learning rate below"
    ):
        train(start, replace(chosen, learning_rate=1e38), SIZES, pairs(), pairs(), 3, Draws(0))

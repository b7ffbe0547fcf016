from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.draws import BLOCK_WORDS, Draws, chacha_block, shuffle
from hushrec.errors import HushrecError
from hushrec.protocol import Ragged, kept_arrays, restore
from hushrec.systems.ptf_fedrec.clients import (
    LocalClients,
    LocalModel,
    LocalSettings,
    enrol,
    predict_slots,
    receive,
    redraw,
    train,
)

torch = pytest.importorskip("torch")
from benchmarks.local_training import Recommender, differences, train_one  # noqa: E402

torch.set_num_threads(1)
DRAWS = Draws(7)
NUM_ITEMS = 60
NEUMF = LocalSettings(
    model="neumf", num_factors=16, layers=(32, 16), num_graph_layers=3, epochs=3, batch_size=20, learning_rate=0.01
)
EVERY_MODEL = [
    pytest.param(NEUMF, id="neumf"),
    pytest.param(replace(NEUMF, num_factors=5, layers=(7,), batch_size=13), id="neumf-odd-sizes"),
    pytest.param(replace(NEUMF, layers=(24, 9, 8), batch_size=100), id="neumf-three-layers"),
    pytest.param(replace(NEUMF, model="lightgcn"), id="lightgcn"),
    pytest.param(replace(NEUMF, model="lightgcn", num_graph_layers=2), id="lightgcn-two"),
    pytest.param(replace(NEUMF, model="lightgcn", num_graph_layers=1, num_factors=6), id="lightgcn-one"),
    pytest.param(replace(NEUMF, model="ngcf"), id="ngcf"),
    pytest.param(replace(NEUMF, model="ngcf", num_graph_layers=1, num_factors=7), id="ngcf-one"),
    pytest.param(replace(NEUMF, model="ngcf", num_graph_layers=2, num_factors=32), id="ngcf-two"),
]
THREE_MODELS = [pytest.param(replace(NEUMF, model=name), id=name) for name in ("neumf", "lightgcn", "ngcf")]


def user_rows(*items: list[int]) -> UserRows:
    starts = np.concatenate([[0], np.cumsum([len(mine) for mine in items])])
    return UserRows(starts, np.array(list(chain(*items)), np.int32), None)


# One positive; a few; many; all items but two.
ROWS = user_rows([5], [0, 3, 7, 30, 59], list(range(0, 60, 3)), list(range(1, 59)))
NUMBERS = np.array([4, 9, 11, 30], np.int32)
EVERY = np.arange(4)


def clients_at_start(
    settings: LocalSettings = NEUMF, has_repeats: bool = True, room: int = 40, num_redraws: int = 0
) -> LocalClients:
    return enrol(NUMBERS, ROWS, NUM_ITEMS, settings, 4, has_repeats, np.full(4, room), num_redraws, DRAWS)


def ragged(*parts: list[int]) -> Ragged:
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Ragged(starts, np.array(list(chain(*parts)), np.int32))


def send(clients: LocalClients, settings: LocalSettings = NEUMF, accumulates: bool = True, shift: int = 0) -> None:
    items = ragged([5, 6 + shift, 1], [2, 2, 0, 40 + shift], [], [0, 59, 59])
    scores = Ragged(items.starts, np.linspace(0.1, 0.9, len(items.values)).astype(np.float32))
    receive(clients, EVERY, items, scores, accumulates, settings, NUMBERS, DRAWS)


def slots_of(clients: LocalClients, row: int) -> np.ndarray:
    return clients.slot_items[clients.starts[row] : clients.starts[row] + clients.num_slots[row]]


def samples_of(clients: LocalClients, row: int) -> list[tuple[int, float]]:
    samples = slice(clients.sample_starts[row], clients.sample_starts[row] + clients.num_samples[row])
    items = slots_of(clients, row)[clients.sample_slots[samples]]
    return [
        (int(item), round(float(label), 4))
        for item, label in zip(items, clients.sample_labels[samples], strict=True)
    ]


def learned(clients: LocalClients) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in kept_arrays(clients).items()}


def assert_same(one: LocalClients, other: LocalClients) -> None:
    for name, array in kept_arrays(one).items():
        np.testing.assert_array_equal(array, kept_arrays(other)[name], err_msg=name)


def test_negatives_with_repeats() -> None:
    clients = clients_at_start()
    for row, number in enumerate([1, 5, 20, 58]):
        mine = ROWS.items[ROWS.starts[row] : ROWS.starts[row + 1]]
        samples = samples_of(clients, row)
        assert samples[:number] == [(item, 1.0) for item in mine.tolist()]
        assert len(samples) == 5 * number == clients.num_own_samples[row]
        negatives = [item for item, label in samples[number:] if label == 0]
        assert len(negatives) == 4 * number
        assert not set(negatives) & set(mine.tolist())
        distinct = list(dict.fromkeys(negatives))
        assert slots_of(clients, row).tolist() == [*mine.tolist(), *distinct]
    # 232 draws of two items: binomial, |z| < 5, false-alarm rate 6e-7
    assert abs(negatives.count(0) - 116) < 5 * np.sqrt(58)


def test_distinct_negatives_run_out() -> None:
    clients = clients_at_start(has_repeats=False)
    assert clients.num_own_samples.tolist() == [5, 25, 60, 60]
    for row in range(4):
        assert len(set(slots_of(clients, row).tolist())) == clients.num_slots[row] == clients.num_own_samples[row]


@pytest.mark.parametrize("has_repeats", [True, False])
def test_negatives_drawn_anew(has_repeats: bool) -> None:
    """As many others instead, never a positive; vectors of before stay, new ones start as if received."""
    clients = clients_at_start(has_repeats=has_repeats, num_redraws=5)
    send(clients)
    train(clients, EVERY, NUMBERS, 1, NEUMF, DRAWS)
    before, num_before = [samples_of(clients, row) for row in range(4)], clients.num_slots.copy()
    slots, vectors = clients.slot_items.copy(), clients.rows.copy()
    for round_number in (2, 3, 4, 5, 6):
        redraw(clients, EVERY, NUMBERS, round_number, has_repeats, NEUMF, DRAWS)
    for row, own in enumerate(before):
        now, num_own = samples_of(clients, row), clients.num_own_samples[row]
        num_positives = clients.num_positives[row]
        mine, drawn = {item for item, _ in own[:num_positives]}, now[num_positives:num_own]
        assert now[:num_positives] == own[:num_positives]
        assert now[num_own:] == own[num_own:]
        assert all(label == 0 and item not in mine for item, label in drawn)
        if not has_repeats:
            assert len(set(drawn)) == len(drawn)
        if len(drawn) < NUM_ITEMS - len(mine):
            assert drawn != own[num_positives:num_own]
        assert len(set(slots_of(clients, row).tolist())) == clients.num_slots[row]
        kept = slice(clients.starts[row], clients.starts[row] + num_before[row])
        np.testing.assert_array_equal(clients.slot_items[kept], slots[kept])
        np.testing.assert_array_equal(clients.rows[kept], vectors[kept])
    assert clients.num_slots[1] > num_before[1]
    new, told = clients.starts[1] + num_before[1], clients_at_start(has_repeats=has_repeats)
    items = ragged([], [int(clients.slot_items[new])], [], [])
    receive(told, EVERY, items, Ragged(items.starts, np.ones(1, np.float32)), True, NEUMF, NUMBERS, DRAWS)
    last = told.starts[1] + told.num_slots[1] - 1
    np.testing.assert_array_equal(clients.rows[new], told.rows[last])


def test_what_is_drawn_anew_depends_on_client_and_round_only() -> None:
    together, alone, later = (clients_at_start(num_redraws=3) for _ in range(3))
    redraw(together, EVERY, NUMBERS, 2, True, NEUMF, DRAWS)
    for row in (3, 0, 2, 1):
        redraw(alone, EVERY[[row]], NUMBERS[[row]], 2, True, NEUMF, DRAWS)
    assert_same(together, alone)
    redraw(later, EVERY, NUMBERS, 3, True, NEUMF, DRAWS)
    assert samples_of(later, 1) != samples_of(together, 1)


def test_a_client_with_every_item_has_no_negatives() -> None:
    rows = user_rows(list(range(NUM_ITEMS)))
    for has_repeats in (False, True):
        clients = enrol(NUMBERS[:1], rows, NUM_ITEMS, NEUMF, 4, has_repeats, np.array([3]), 0, DRAWS)
        train(clients, EVERY[:1], NUMBERS[:1], 1, NEUMF, DRAWS)
        assert clients.num_samples.tolist() == clients.num_slots.tolist() == [NUM_ITEMS]


def test_initial_values_have_the_stated_distributions() -> None:
    """Standard deviations and bounds over 3000 clients; |z| < 5 of a standard deviation, false-alarm rate 6e-7."""
    numbers = np.arange(3000, dtype=np.int32)
    rows = UserRows(np.arange(3001), np.arange(3000, dtype=np.int32) % NUM_ITEMS, None)
    for name, deviation in (("neumf", 1.0), ("lightgcn", 0.1)):
        settings = replace(NEUMF, model=name)
        clients = enrol(numbers, rows, NUM_ITEMS, settings, 1, True, np.zeros(3000, np.int64), 0, DRAWS)
        for values in (clients.weights[:, :16], clients.used_rows):
            assert abs(values.std() / deviation - 1) < 5 / np.sqrt(2 * values.size)
            assert abs(values.mean() / deviation) < 5 / np.sqrt(values.size)
        first, second = clients.weights[:, 16 : 16 + 33 * 32], clients.weights[:, 16 + 33 * 32 :][:, : 33 * 16]
        for values, bound in ((first, 32**-0.5), (second, 32**-0.5), (clients.weights[:, -17:], 0.25)):
            assert 0.99 * bound < np.abs(values).max() < bound
            assert abs(values.std() / bound - 3**-0.5) < 0.01
    clients = enrol(
        numbers, rows, NUM_ITEMS, replace(NEUMF, model="ngcf"), 1, True, np.zeros(3000, np.int64), 0, DRAWS
    )
    parts = np.split(clients.weights, np.cumsum([16, 256, 16, 256, 16]), axis=1)
    row, matrix = (6 / 17) ** 0.5, (6 / 32) ** 0.5
    for values, bound in zip(
        [clients.used_rows, *parts], [(6 / 76) ** 0.5, row, matrix, row, matrix, row], strict=False
    ):
        assert 0.99 * bound < np.abs(values).max() < bound
        assert abs(values.std() / bound - 3**-0.5) < 0.01


def test_received_items_are_appended_or_replace_the_last() -> None:
    """Client 1 has item 0 as a positive; 2 comes twice. The scores are 0.1, 0.1889, ... over all ten pairs."""
    clients, other = clients_at_start(), clients_at_start()
    own = samples_of(clients, 1)
    send(clients)
    first, second = ([(2, 0.3667), (2, 0.4556), (item, 0.6333)] for item in (40, 41))
    assert samples_of(clients, 1) == [*own, *first]
    send(clients, shift=1)
    assert samples_of(clients, 1) == [*own, *first, *second]
    send(other, accumulates=False)
    send(other, accumulates=False, shift=1)
    assert samples_of(other, 1) == [*own, *second]
    # What was received once keeps its vector.
    np.testing.assert_array_equal(clients.used_slot_items, other.used_slot_items)
    assert len(set(slots_of(clients, 1).tolist())) == clients.num_slots[1]


def test_a_received_item_begins_with_the_vector_it_would_have_had() -> None:
    clients = clients_at_start()
    before = LocalModel(clients, NEUMF).score(np.arange(4, dtype=np.int32))
    send(clients)
    after = LocalModel(clients, NEUMF).score(np.arange(4, dtype=np.int32))
    np.testing.assert_array_equal(before, after)


def test_too_much_and_unknown_items_are_refused() -> None:
    clients = clients_at_start(room=2)
    with pytest.raises(HushrecError, match="most_received"):
        send(clients)
    scores = Ragged(np.array([0, 1]), np.array([0.5], np.float32))
    for item in (-1, NUM_ITEMS):
        with pytest.raises(HushrecError, match=r"0\.\.59"):
            receive(clients, EVERY[:1], ragged([item]), scores, True, NEUMF, NUMBERS[:1], DRAWS)


def test_the_order_of_samples_is_fisher_yates_from_the_keyed_stream() -> None:
    key, size = DRAWS.key("local-order"), 37
    order, words = np.empty(size, np.int32), np.empty(BLOCK_WORDS, np.uint32)
    shuffle(key, 3, 5, 2, words, order, size)
    stream = []
    for block in range(3):
        chacha_block(key, 3, 5, (2 << 32) + block, words)
        stream += words.tolist()
    expected = list(range(size))
    for word, last in zip(stream, range(size - 1, 0, -1), strict=False):
        place = word * (last + 1) >> 32
        expected[last], expected[place] = expected[place], expected[last]
    assert order.tolist() == expected
    assert sorted(expected) == list(range(size))


@pytest.mark.parametrize("settings", EVERY_MODEL)
def test_training_equals_autograd_and_torch_adam(settings: LocalSettings) -> None:
    """Two rounds, with received items in between; tables of all items in PyTorch."""
    clients = clients_at_start(settings)
    send(clients, settings)
    models = [Recommender(clients, row, settings) for row in EVERY]
    for round_number in (1, 2):
        for row, model in enumerate(models):
            train_one(model, clients, row, int(NUMBERS[row]), round_number, DRAWS.key("local-order"))
        train(clients, EVERY, NUMBERS, round_number, settings, DRAWS)
    assert clients.trained_round.tolist() == [2] * 4
    for row, model in enumerate(models):
        numbers_off, scores_off = differences(model, clients, row)
        assert numbers_off < 2e-4
        assert scores_off < 2e-5


@pytest.mark.parametrize("settings", THREE_MODELS)
def test_one_step_equals_torch_closely(settings: LocalSettings) -> None:
    """One batch with all samples of a client, repeats included: Adam's moments are the gradient and its square."""
    settings = replace(settings, epochs=1, batch_size=1000)
    clients = clients_at_start(settings)
    models = [Recommender(clients, row, settings) for row in EVERY]
    train(clients, EVERY, NUMBERS, 1, settings, DRAWS)
    for row, model in enumerate(models):
        train_one(model, clients, row, int(NUMBERS[row]), 1, DRAWS.key("local-order"))
        slots = slice(clients.starts[row], clients.starts[row] + clients.num_slots[row])
        gradient = model.items.grad.numpy()[slots_of(clients, row)]
        np.testing.assert_allclose(clients.row_means[slots], 0.1 * gradient, rtol=1e-4, atol=1e-8)
        np.testing.assert_allclose(clients.row_squares[slots], 0.001 * gradient**2, rtol=2e-4, atol=1e-12)
        gradient = model.user.grad.numpy()[0]
        np.testing.assert_allclose(clients.weight_means[row, :16], 0.1 * gradient, rtol=1e-4, atol=1e-8)


def test_rows_go_on_moving_without_a_gradient() -> None:
    """Received items that were replaced are in no batch any more; dense Adam moves them by their momentum."""
    clients = clients_at_start()
    send(clients)
    train(clients, EVERY, NUMBERS, 1, NEUMF, DRAWS)
    send(clients, accumulates=False, shift=1)
    place = clients.starts[1] + slots_of(clients, 1).tolist().index(40)
    before = clients.rows[place].copy(), clients.row_means[place].copy()
    steps = clients.num_steps[1]
    train(clients, EVERY, NUMBERS, 2, NEUMF, DRAWS)
    assert np.all(clients.rows[place] != before[0])
    np.testing.assert_allclose(
        clients.row_means[place], before[1] * 0.9 ** (clients.num_steps[1] - steps), rtol=1e-4
    )


@pytest.mark.parametrize("settings", THREE_MODELS)
def test_cohorts_and_threads_do_not_change_a_bit(settings: LocalSettings) -> None:
    generator = np.random.default_rng(0)
    items = [np.sort(generator.choice(NUM_ITEMS, size, False)).tolist() for size in generator.integers(1, 30, 23)]
    numbers, every = np.arange(100, 123, dtype=np.int32), np.arange(23)

    def run(cohorts: list[np.ndarray], num_threads: int) -> LocalClients:
        clients = enrol(numbers, user_rows(*items), NUM_ITEMS, settings, 4, True, np.full(23, 9), 0, DRAWS)

        def handle(rows: np.ndarray) -> None:
            train(clients, rows, numbers[rows], 1, settings, DRAWS)
            sent = ragged(*[[int(row), 50] for row in rows])
            scores = Ragged(sent.starts, np.full(len(sent.values), 0.3, np.float32))
            receive(clients, rows, sent, scores, True, settings, numbers[rows], DRAWS)
            train(clients, rows, numbers[rows], 2, settings, DRAWS)

        with ThreadPoolExecutor(num_threads) as pool:
            list(pool.map(handle, cohorts))
        return clients

    together = run([every], 1)
    assert_same(together, run(np.split(every, every[1:]), 1))
    assert_same(together, run(np.array_split(every, 4), 2))
    slots = ragged(*[[0, 1, 0] for _ in every])
    scores = predict_slots(together, every, slots, settings)
    alone = [predict_slots(together, every[[row]], slots.part(row, row + 1), settings) for row in every]
    np.testing.assert_array_equal(scores, np.concatenate(alone))


@pytest.mark.parametrize("settings", THREE_MODELS)
def test_the_model_ranks_all_items(settings: LocalSettings) -> None:
    """Trained items by their vectors, others by their initial ones: a client that was sent all items agrees."""
    clients, full = clients_at_start(settings), clients_at_start(settings, room=NUM_ITEMS)
    train(clients, EVERY, NUMBERS, 1, settings, DRAWS)
    train(full, EVERY, NUMBERS, 1, settings, DRAWS)
    everything = ragged(*[list(range(NUM_ITEMS))] * 4)
    scores = Ragged(everything.starts, np.zeros(len(everything.values), np.float32))
    receive(full, EVERY, everything, scores, True, settings, NUMBERS, DRAWS)
    assert full.num_slots.tolist() == [NUM_ITEMS] * 4
    model = LocalModel(clients, settings)
    users = np.array([2, 0, 3], np.int32)
    ranked = model.score(users)
    for place, user in enumerate(users):
        slots = np.arange(NUM_ITEMS, dtype=np.int32)
        expected = predict_slots(full, EVERY[[user]], Ragged(np.array([0, NUM_ITEMS]), slots), settings)
        np.testing.assert_array_equal(ranked[place, slots_of(full, user)], expected)
    pairs = np.array([2, 0, 2, 3, 0], np.int32), np.array([59, 1, 4, 0, 1], np.int32)
    np.testing.assert_array_equal(model.predict(*pairs), ranked[[0, 1, 0, 2, 1], pairs[1]])
    with pytest.raises(HushrecError, match="newcomers"):
        model.fold_in(pairs[1], np.ones(5, np.float32))


def test_training_learns() -> None:
    clients = clients_at_start()
    settings = replace(NEUMF, epochs=40)
    train(clients, EVERY, NUMBERS, 1, settings, DRAWS)
    for row in (1, 2):
        slots = ragged(list(range(clients.num_slots[row])))
        scores = predict_slots(clients, EVERY[[row]], slots, settings)
        num_positives = clients.num_positives[row]
        assert scores[:num_positives].min() > scores[num_positives:].max()


def test_packed_arrays_restore_all_that_training_changes() -> None:
    clients = clients_at_start()
    send(clients)
    train(clients, EVERY, NUMBERS, 1, NEUMF, DRAWS)
    kept = learned(clients)
    assert len(kept["used_rows"]) == clients.num_slots.sum() < len(clients.rows)
    restored = clients_at_start()
    restore(restored, kept)
    assert_same(clients, restored)
    for one in (clients, restored):
        send(one, shift=2)
        train(one, EVERY, NUMBERS, 2, NEUMF, DRAWS)
    assert_same(clients, restored)


def test_bad_settings_are_refused() -> None:
    for change in ({"layers": ()}, {"num_factors": 0}, {"epochs": 0}, {"learning_rate": 0.0}):
        with pytest.raises(HushrecError):
            replace(NEUMF, **change)
    with pytest.raises(HushrecError, match="num_graph_layers"):
        replace(NEUMF, model="ngcf", num_graph_layers=0)

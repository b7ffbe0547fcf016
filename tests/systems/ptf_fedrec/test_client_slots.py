"""Which slots of a client's table hold what."""

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec import clients as local
from hushrec.systems.ptf_fedrec.client_slots import by_item, own_slots, table_bytes, trained_slots
from hushrec.systems.ptf_fedrec.clients import LocalClients, LocalSettings

SETTINGS = LocalSettings(
    model="neumf", num_factors=3, layers=(4, 2), num_graph_layers=1, epochs=1, batch_size=8, learning_rate=0.01
)
ROWS, NUMBERS = np.arange(3), np.arange(3, dtype=np.int32)


def some_clients(has_repeats: bool = False) -> LocalClients:
    """Client 0 has items 7 and 2, client 1 none, client 2 item 9, of 12; two negatives per positive."""
    rows = UserRows(np.array([0, 2, 2, 3]), np.array([2, 7, 9], np.int32), None)
    return local.enrol(NUMBERS, rows, 12, SETTINGS, 2, has_repeats, np.full(3, 6), 0, Draws(0))


def receive(clients: LocalClients, items: list[list[int]], accumulates: bool) -> None:
    starts = np.concatenate([[0], np.cumsum([len(one) for one in items])])
    values = np.array([item for one in items for item in one], np.int32)
    scores = Ragged(starts, np.full(len(values), 0.5, np.float32))
    local.receive(clients, ROWS, Ragged(starts, values), scores, accumulates, SETTINGS, NUMBERS, Draws(0))


def test_own_slots_are_positives_and_negatives() -> None:
    clients = some_clients()
    found = own_slots(clients, ROWS)
    assert found.lengths.tolist() == [6, 0, 3]
    assert found.values.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    np.testing.assert_array_equal(own_slots(clients, ROWS[2:]).values, [0, 1, 2])


def others(clients: LocalClients, client: int, how_many: int) -> list[int]:
    """Items that are not in a client's table."""
    own = clients.slot_items[clients.starts[client] :][: clients.num_slots[client]]
    return np.setdiff1d(np.arange(12), own)[:how_many].tolist()


@pytest.mark.parametrize("accumulates", [True, False])
def test_trained_slots_are_those_of_this_round(accumulates: bool) -> None:
    """Client 0 gets two new items, then one of them with its positive, which it drops."""
    clients = some_clients()
    new = others(clients, 0, 2)
    receive(clients, [new, [], []], accumulates)
    assert trained_slots(clients, ROWS).part(0, 1).values.tolist() == list(range(8))
    receive(clients, [[new[1], 7], [3], []], accumulates)
    found = trained_slots(clients, ROWS)
    assert found.part(0, 1).values.tolist() == ([*range(8)] if accumulates else [*range(6), 7])
    assert found.part(1, 2).values.tolist() == [0]
    assert own_slots(clients, ROWS).lengths.tolist() == [6, 0, 3], "what was received is not its own"


def test_repeats_are_trained_but_listed_once() -> None:
    clients = some_clients(has_repeats=True)
    clients.sample_slots[:6] = [0, 1, 2, 2, 3, 2]
    assert own_slots(clients, ROWS[:1]).values.tolist() == [0, 1, 2, 2, 3, 2]
    assert trained_slots(clients, ROWS[:1]).values.tolist() == [0, 1, 2, 3]


def test_items_are_sorted_so_that_their_order_tells_nothing() -> None:
    clients = some_clients()
    items, scores = by_item(
        clients,
        ROWS[[2, 0]],
        Ragged(np.array([0, 1, 4]), np.array([0, 1, 5, 0], np.int32)),
        np.array([0.9, 0.7, 0.1, 0.2], np.float32),
    )
    last = int(clients.slot_items[5])
    assert items.starts.tolist() == [0, 1, 4]
    expected = sorted([(7, 0.7), (last, 0.1), (2, 0.2)])
    assert items.values.tolist() == [9, *(item for item, _ in expected)]
    np.testing.assert_array_equal(scores.values, np.array([0.9, *(score for _, score in expected)], np.float32))


def test_tables_grow_with_what_is_received() -> None:
    clients = some_clients()
    before = table_bytes(clients)
    receive(clients, [others(clients, 0, 2), [], []], accumulates=True)
    assert (table_bytes(clients) - before).tolist() == [2 * (12 * 3 + 8), 0, 0]

"""The mean of two models."""

from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.systems.ptf_fedrec.clients import LocalModel
from hushrec.systems.ptf_fedrec.ensemble import Ensemble

from .test_client_slots import ROWS, SETTINGS, some_clients


@dataclass(frozen=True)
class Table:
    """A server whose scores are given."""

    scores: np.ndarray

    def score(self, users: np.ndarray) -> np.ndarray:
        return self.scores[users]

    def fold_in(self, _items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        raise HushrecError("no newcomers")


def test_means_are_taken_where_the_client_has_trained() -> None:
    clients = some_clients()
    server = np.random.default_rng(0).random((3, 12), np.float32)
    own = LocalModel(clients, SETTINGS)
    ensemble, users = Ensemble(Table(server), own), np.array([2, 0, 1], np.int32)
    found, alone = ensemble.score(users), own.score(users)
    for place, user in enumerate(users):
        table = clients.slot_items[clients.starts[user] :][: clients.num_slots[user]]
        is_trained = np.isin(np.arange(12), table)
        assert is_trained.sum() == (6, 0, 3)[user]
        np.testing.assert_allclose(
            found[place, is_trained], (server[user] + alone[place])[is_trained] / 2, rtol=1e-6
        )
        np.testing.assert_array_equal(found[place, ~is_trained], server[user, ~is_trained])
    pairs = np.array([0, 2, 0, 1], np.int32), np.array([7, 9, 3, 3], np.int32)
    np.testing.assert_array_equal(ensemble.predict(*pairs), ensemble.score(ROWS.astype(np.int32))[pairs])
    with pytest.raises(HushrecError, match="no newcomers"):
        ensemble.fold_in(pairs[1], np.ones(4, np.float32))

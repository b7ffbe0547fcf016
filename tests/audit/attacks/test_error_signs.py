from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from audit.conftest import Bare
from hushrec.audit.attacks.error_signs import Guesses, Sizes, answers_recommender, guess_positives, judge
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import clients_of, items_of
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged
from hushrec.systems.metamf import network as metamf
from hushrec.systems.metamf.network import Positives, client_gradients

# One factor, one hidden unit: vectors 1, 3, -3; A = 1, its bias 0; c = 2, its bias 0.
# The unit is on for items 0 and 1. With errors -0.5 and 0.25: vectors' gradients are error * c A, A's is
# c (-0.5 * 1 + 0.25 * 3), its bias's c (-0.5 + 0.25), c's -0.5 * 1 + 0.25 * 3, its bias's -0.25.
RECOMMENDER = [1.0, 3.0, -3.0, 1.0, 0.0, 2.0, 0.0]
GRADIENT = [-1.0, 0.5, 0.0, 0.5, -0.5, 0.25, -0.25]


@dataclass(frozen=True)
class Made(Message):
    """Reveals: a recommender."""

    sender, receiver = Role.SERVER, Role.CLIENT
    recommender: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Answer(Message):
    """Reveals: its gradient."""

    sender, receiver = Role.CLIENT, Role.SERVER
    gradient: Ragged = ragged(np.float32)


def recorded(kind: Callable[[Ragged], Message], clients: Sequence[int], rows: np.ndarray | list) -> Recorded:
    values = np.asarray(rows, np.float32)
    starts = np.arange(len(clients) + 1) * values.shape[1]
    return Recorded(1, np.array(clients, np.int32), kind(Ragged(starts, values.ravel())))


def by_client(guesses: Guesses) -> dict[int, list[int]]:
    pairs = guesses.pairs
    return {int(one): items_of(pairs[clients_of(pairs) == one]).tolist() for one in guesses.clients}


def test_signs_by_hand() -> None:
    """Seven numbers could also be one item with two factors; that does not explain the upload."""
    guesses = guess_positives(None, [recorded(Made, [4], [RECOMMENDER]), recorded(Answer, [4], [GRADIENT])])
    assert guesses.sizes == Sizes(3, 1, 1)
    assert by_client(guesses) == {4: [0]}


def test_what_one_round_does_not_tell_another_may() -> None:
    """In the second round -c is sent: item 1 is guessed from a positive gradient, item 0 not again."""
    turned = [1.0, 3.0, -3.0, 1.0, 0.0, -2.0, 0.0]
    first = guess_positives(None, [recorded(Made, [0], [RECOMMENDER]), recorded(Answer, [0], [GRADIENT])])
    second = guess_positives(first, [recorded(Made, [0], [turned]), recorded(Answer, [0], [GRADIENT])])
    assert by_client(second) == {0: [0, 1]}


def test_metamf_tells_its_items(owning: Callable[..., Truth]) -> None:
    """Of items for which a unit is on; MetaMF's own gradients, with four drawn items each."""
    sizes = metamf.Sizes(6, 30, 8, 4, 16, 16)
    owned, numbers = [[1, 2, 3], [0], [5, 7, 29], [4], [8, 9], [10, 11]], np.arange(6, dtype=np.int32)
    held = Positives(np.cumsum([0, *map(len, owned)]), np.array([item for own in owned for item in own], np.int32))
    generator, guesses = np.random.default_rng(0), None
    for round_number in range(1, 7):
        made = generator.standard_normal((6, sizes.num_generated)).astype(np.float32)
        key = Draws(0).key("negatives")
        answer = client_gradients(held, np.arange(6), numbers, made, sizes, 4, key, round_number)
        seen = [recorded(Made, range(6), made), recorded(Answer, range(6), answer.reshape(6, -1))]
        guesses = guess_positives(guesses, seen)
    assert guesses is not None
    assert guesses.sizes == Sizes(30, 8, 2)
    assert by_client(guesses) == dict(enumerate(owned))
    outcome = judge(guesses, owning(owned, 30))
    assert outcome.scores.tolist() == [1.0] * 6


def test_an_upload_without_anything_tells_no_sizes() -> None:
    silent = [recorded(Made, [0], [RECOMMENDER]), recorded(Answer, [0], [[0.0] * 7])]
    guesses = guess_positives(None, silent)
    assert guesses.sizes is None
    assert by_client(guesses) == {0: []}


def test_an_upload_of_another_length_is_refused() -> None:
    with pytest.raises(HushrecError, match="not one number for each that was sent"):
        guess_positives(None, [recorded(Made, [0], [RECOMMENDER]), recorded(Answer, [0], [GRADIENT[:-1]])])


def test_it_reads_gradients_of_recommenders_only() -> None:
    assert [answers_recommender(kind) for kind in (Answer, Made, Bare)] == [True, False, False]

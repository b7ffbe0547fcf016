"""The driving side takes in replies of the type that it asked for, and of somebody."""

import numpy as np
import pytest

from hushrec.protocol import NO_ONE, Collect, Ragged
from hushrec.registry import SYSTEMS
from hushrec.runtime.rounds import Expected
from hushrec.runtime.wire import WireError
from hushrec.systems.fedrec import ItemGradients, Settled
from hushrec.testing.hostile import scenes

NUMBERS = np.array([3], np.int32)
GRADIENTS = ItemGradients(Ragged.one(np.zeros(1, np.int32)), Ragged.one(np.zeros((1, 2), np.float32)))


def test_another_type_is_refused() -> None:
    fold = Expected(Collect(), ItemGradients)
    fold.add(NUMBERS, GRADIENTS)
    with pytest.raises(WireError, match=r"\Aanswered with Settled, not ItemGradients\Z"):
        fold.add(NUMBERS, Settled())
    assert isinstance(fold.fold, Collect)
    assert len(fold.fold.batches) == 1


def test_a_reply_of_nobody_is_refused() -> None:
    with pytest.raises(WireError, match="answered for nobody"):
        Expected(Collect(), ItemGradients).add(NO_ONE, GRADIENTS.part(0, 0))


def test_forks_are_as_strict_and_their_replies_are_kept() -> None:
    fold = Expected(Collect(), ItemGradients)
    fork = fold.fork()
    with pytest.raises(WireError, match="answered with"):
        fork.add(NUMBERS, Settled())
    fork.add(NUMBERS, GRADIENTS)
    fold.merge(fork)
    assert isinstance(fold.fold, Collect)
    assert len(fold.fold.batches) == 1


@pytest.mark.parametrize("name", ["fedrec", "fedncf", "fedcore", "drift", "ptf-fedrec"])
def test_every_request_has_one_type_of_reply(name: str) -> None:
    """Or the scene's honest rounds would not have come to their end."""
    for scene in scenes(SYSTEMS[name]):
        for request in set(scene.sent) & set(scene.system.handlers):
            reply = scene.system.reply_to(request, scene.config)
            assert reply in scene.sent
            assert reply not in scene.system.handlers
            assert reply not in scene.system.inboxes

from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.audit.attacks.step_direction import at_smaller_end, guess_positives, has_steps
from hushrec.audit.driver import audit
from hushrec.audit.uploads import clients_of, items_of
from hushrec.data import synthetic
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged
from hushrec.registry import system_named
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for


@dataclass(frozen=True)
class Steps(Message):
    """Reveals: steps."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32)
    gradients: Ragged = ragged(np.float32, 2)


def test_by_hand() -> None:
    """Client 4 moves items 2 and 9 one way along (2, 1), and three others the other way; 5 moves nothing; the
    steps of client 6 are those of 4, but for their sign.
    """
    steps = np.array([[-2, -1], [2, 1.1], [-1, -0.4], [2.1, 1], [-3, -1.5]], np.float32)
    starts = np.array([0, 5, 5, 10])
    items = np.tile(np.array([1, 2, 5, 9, 11], np.int32), 2)
    message = Steps(Ragged(starts, items), Ragged(starts, np.vstack([steps, -steps])))
    guesses = guess_positives(None, [Recorded(1, np.array([4, 5, 6], np.int32), message)])
    assert guesses.clients.tolist() == [4, 5, 6]
    assert clients_of(guesses.pairs).tolist() == [4, 4, 6, 6]
    assert items_of(guesses.pairs).tolist() == [2, 9, 2, 9]
    first, second = (np.array([0, 5]), np.array([5, 2, 9, 11, 1], np.int32)), steps[[2, 1, 0, 3, 4]]
    moved = Steps(Ragged(first[0], first[1]), Ragged(first[0], second))
    later = guess_positives(guesses, [Recorded(2, np.array([4], np.int32), moved)])
    assert later.clients.tolist() == [4, 5, 6]
    assert items_of(later.pairs).tolist() == [2, 2, 9], "client 4 moved item 9 the other way in round 2"
    newcomer = guess_positives(later, [Recorded(3, np.array([9], np.int32), moved)])
    assert newcomer.clients.tolist() == [4, 5, 6, 9]
    assert items_of(newcomer.pairs).tolist() == [2, 2, 9, 2, 11]
    assert has_steps(Steps)
    assert at_smaller_end(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize("biases", [False, True])
def test_it_reads_fedncf_and_virtual_samples_hide_from_it(biases: bool) -> None:
    """Without noise an upload tells all; with rho 3 one of four that it takes for the client's is. There is room
    for all virtual items, with 6 of 400 per user: F1 is 2 (1/4) / (1/4 + 1) = 0.4, if they look alike. In the
    third round most of what is virtual was not there before.
    """
    system, found = system_named("fedncf"), {}
    values = {"num_rounds": 3, "participation": 1.0, "learning_rate": 0.003, "biases": biases}
    for rho in (0, 3):
        config = system.configure({**values, "rho": rho, "denoisers": min(rho, 1)})
        job = job_for(system, config, 0, synthetic(40, 400, 240))
        findings = audit(job, RuntimeOptions(threads=1), lambda *_: None).findings
        found[rho] = next(one.rounds for one in findings if one.attack.name == "step direction")
    assert min(found[0]) > 0.99
    assert 0.38 < found[3][0] < 0.42
    assert found[3][2] > 0.8

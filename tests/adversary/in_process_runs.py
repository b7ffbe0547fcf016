"""Small systems in this process, to be asked whatever one likes."""

from typing import Any

import numpy as np

from hushrec.draws import Draws
from hushrec.protocol import Numbers, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from systems.runs import Ratings

PARTNER_SETTINGS: dict[str, Any] = {"num_rounds": 1, "num_factors": 4, "batch_size": 32, "inference": "none"}


def numbers(*values: int) -> Numbers:
    return np.array(values, np.int32)


def running(name: str, ratings: Ratings, **values: Any) -> InProcess:
    system, draws = SYSTEMS[name], Draws(0)
    config, everybody = system.configure(values), np.arange(ratings.num_parties, dtype=np.int32)
    private = system.enrol(everybody, ratings.rows, ratings.num_items, config, draws)
    return InProcess(system, config, draws, private, Transcript(keep_payloads=True), RuntimeOptions(1))


def after_rounds(name: str, ratings: Ratings, last_round: int, **values: Any) -> InProcess:
    runtime = running(name, ratings, **values)
    state = runtime.system.start(ratings.num_parties, ratings.num_items, runtime.config, runtime.draws)
    for round_number in range(1, last_round + 1):
        state = runtime.run_round(state, round_number)
    return runtime

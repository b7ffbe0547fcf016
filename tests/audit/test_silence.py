"""Where nothing is sent, no attack learns anything: a test over the registry."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import hushrec
from audit.test_driver import SHORT, audited, job_of
from hushrec.audit.attacks import ATTACKS
from hushrec.data import Interactions
from hushrec.registry import SYSTEMS


def silent_round(state: Any, _round_number: int, _config: Any, _draws: Any) -> Iterator[Any]:
    """A round in which nobody is asked."""
    yield from ()
    return state


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=40,items=30,ratings=400")


@pytest.mark.parametrize("name", [name for name in ATTACKS if ATTACKS.is_built_in(name)])
def test_no_attack_learns_from_nothing(name: str, data: Interactions) -> None:
    """Told of nobody, or no better than blind; on the first system that it applies to."""
    attack = ATTACKS[name]
    names = [one for one in SYSTEMS if attack.applies_to(SYSTEMS[one])]
    system = next((one for one in names if one in SHORT), names[0])
    job = job_of(system, data) if system in SHORT else job_of("fedrec", data)
    silent = replace(SYSTEMS[system], round=silent_round)
    config = job.config if system in SHORT else silent.configure({"num_rounds": 2})
    done = audited(replace(job, system=silent, config=config), attack)
    assert not [finding for finding in done.findings if finding.score > finding.chance]
    assert done.findings or done.left_out

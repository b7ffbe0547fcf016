"""What is sent in a round of each system, recorded from small runs: `python tools/rounds.py` writes it down."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("rounds.json")
_NUM_ROUNDS = 3


@cache
def read_rounds() -> dict[str, list[dict[str, Any]]]:
    """For each system, sets of settings (the switches beside its small ones) and their messages in order."""
    found: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def as_json(rounds: Mapping[str, Any]) -> str:
    """The text of the file."""
    return json.dumps(rounds, indent=1) + "\n"


def recorded(name: str) -> list[dict[str, Any]]:
    """The rounds of a system: with its small settings, and with each variant that sends other messages."""
    from hushrec.registry import system_named

    found: list[dict[str, Any]] = []
    for variant in ({}, *system_named(name).about.variants):
        steps = _steps(name, variant)
        if steps not in [kept["steps"] for kept in found]:
            found.append({"settings": variant, "steps": steps})
    return found


def _steps(name: str, variant: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each kind of message once, where it is first sent, with a note if it is not sent in every round."""
    from hushrec.data import synthetic
    from hushrec.registry import system_named
    from hushrec.runtime.in_process import RuntimeOptions
    from hushrec.runtime.training import Job, prepared, run_job
    from hushrec.testing.small_runs import settings_for

    system = system_named(name)
    config = system.configure(settings_for(system, _NUM_ROUNDS, {**system.about.small, **variant}))
    train = prepared(system, system.holders.sample(synthetic(24, 30, 288), 0))
    done = run_job(Job(system, config, 0, train), RuntimeOptions(threads=1, keep_payloads=True))
    rounds: dict[str, list[int]] = {}
    for sent in done.transcript.recorded:
        rounds.setdefault(type(sent.message).__name__, []).append(sent.round_number)
    last = max(number for numbers in rounds.values() for number in numbers)
    return [{"message": kind, "note": _note(numbers, last)} for kind, numbers in rounds.items()]


def _note(numbers: list[int], last: int) -> str:
    """When a kind of message is sent, if not once in every round."""
    times = Counter(numbers)
    often = "repeated" if max(times.values()) > 2 else ""
    if last == 1 or len(times) == last:
        return often
    if set(times) == {1}:
        return "first round"
    if set(times) == {last}:
        return "last round"
    return often or "some rounds"

from dataclasses import replace

import pytest

from hushrec.data import load
from hushrec.experiments.drift_time import ALL, CIPHER, STEPS, Clock, preprocessing_seconds, timed, with_seconds
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions

DATA = "synthetic:users=60,items=40,ratings=1500"
SETTINGS = RunSettings(split="random", at=(5,), owners="3")
DRIFT = system_named("drift")


def timed_run(encryption: str, threads: int = 1) -> Run:
    config, clock = DRIFT.configure({"epochs": 1, "encryption": encryption, "window": 64}), Clock()
    done = run(timed(clock), config, load(DATA), SETTINGS, RuntimeOptions(threads))
    return with_seconds(done, clock, 0.5, config.plan.form)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_step_takes_time_and_all_of_it_is_the_cpu_time(threads: int) -> None:
    done = timed_run("aes-gcm", threads)
    seconds = done.folds[0].seconds
    assert tuple(seconds) == STEPS
    for step in STEPS[:-1]:
        assert sum(seconds[step].values()) > 0, step
    owners = {"owner1", "owner2", "owner3"}
    for step in ("encryption", "decryption", "block keeping", "gradients"):
        assert set(seconds[step]) == owners
    assert set(seconds["update"]) == {"orchestrator"}
    total = sum(own for step in STEPS[1:] for own in seconds[step].values())
    assert total == pytest.approx(done.folds[0].cpu_seconds)
    assert seconds["preprocessing"] == {ALL: 0.5}
    ciphers = sum(sum(seconds[step].values()) for step in ("encryption", "decryption"))
    assert 0 < done.folds[0].facts[CIPHER] < ciphers
    assert timed_run("none").folds[0].facts[CIPHER] == 0


def test_a_stopwatch_changes_no_number_and_stays_with_the_run_that_it_was_given_to() -> None:
    done = timed_run("aes-gcm")
    config = DRIFT.configure({"epochs": 1, "window": 64})
    plain = run(DRIFT, config, load(DATA), SETTINGS, RuntimeOptions(threads=1))
    assert plain.folds[0].model_sha256 == done.folds[0].model_sha256
    assert plain.folds[0].sent_bytes == done.folds[0].sent_bytes
    assert plain.folds[0].seconds == {}


def test_a_step_within_a_step_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer step takes from 0 to 10, the inner one from 2 to 5: 7 and 3; then one more of 1."""
    clock, times = Clock(), iter([0.0, 2.0, 5.0, 10.0, 20.0, 21.0])
    monkeypatch.setattr("hushrec.experiments.drift_time.time.thread_time", lambda: next(times))
    with clock("block keeping", 2), clock("decryption", 1):
        pass
    with clock("decryption", 1):
        pass
    assert clock.seconds == {("decryption", 1): 4.0, ("block keeping", 2): 7.0}


def test_the_time_of_a_step_that_fails_is_noted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times = Clock(), iter([0.0, 3.0, 5.0, 6.0])
    monkeypatch.setattr("hushrec.experiments.drift_time.time.thread_time", lambda: next(times))
    with pytest.raises(ZeroDivisionError), clock("gradients", 0):
        raise ZeroDivisionError
    with clock("update"):
        pass
    assert clock.seconds == {("gradients", 0): 3.0, ("update", -1): 1.0}


def test_preprocessing_is_measured() -> None:
    assert preprocessing_seconds(DATA, DRIFT.configure({}), replace(SETTINGS, seed=1)) > 0

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import synthetic
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Recorded, each, ragged
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, prepared, run_job
from hushrec.systems.drift.messages import BlockGradients, OwnerKey, Register, SentInteractions

from .owner_runs import learned_slowly, some_stream, stream
from .runs import Finished, digest, losing, run, settings_of, some_events

GOLDEN_BEFORE_SALTS = "21a70d2f9893810516fc00ba790700e8f64046a2a549e10fe0b45d0b70c67c1b"
GOLDEN = "3fd1f3c7f41f2978f0a9955e982421937aea4c69ee72e1ca3c82be85612d40bb"
USUAL = {"window": 20, "learning_rate": 0.5, "regularization": 0.02}


def assert_same_model(one: Finished, other: Finished) -> None:
    np.testing.assert_array_equal(one.user_factors, other.user_factors)
    np.testing.assert_array_equal(one.item_factors, other.item_factors)


@pytest.mark.parametrize(
    "values",
    [{"encryption": "none"}, {}, {"flag": "inside", "batch": 3}, {"epochs": 4, "parts": 3}],
    ids=str,
)
def test_it_is_drift_with_one_owner_and_theta_1(values: dict[str, Any]) -> None:
    """Bit for bit, also through encryption."""
    ratings = some_events(1)
    saros = run("saros", ratings, **USUAL, **settings_of("saros", values))
    assert_same_model(saros, run("drift", ratings, theta=1, **USUAL, **values))
    assert (saros.item_factors != saros.states[0].item_factors).any()


def test_theta_2_and_two_owners_are_something_else() -> None:
    """So that the test above can fail."""
    saros = run("saros", some_events(1), **USUAL)
    for ratings, theta in ((some_events(1), 2), (some_events(2), 1)):
        other = run("drift", ratings, theta=theta, encryption="none", **USUAL)
        assert np.abs(saros.item_factors - other.item_factors).max() > 1e-3


def test_without_encryption_it_is_the_same_transcript() -> None:
    ratings = some_events(1)
    assert digest(run("saros", ratings, **USUAL)) == digest(
        run("drift", ratings, theta=1, encryption="none", **USUAL), OwnerKey
    )


def test_its_settings_are_drifts() -> None:
    """But for those that make it what it is, and its limits; defaults are the same, but for how long it learns."""
    saros, drift = (SYSTEMS[name].config(epochs=2) for name in ("saros", "drift"))
    assert saros.plan == drift.plan._replace(
        theta=1, threshold="blocks", max_delay=0, form=saros.plan.form, has_owners=False
    )
    assert not saros.plan.form.is_encrypted
    own = {"min_blocks": 0, "max_blocks": 0}
    assert vars(saros).items() <= (vars(drift) | own).items()


def test_equals_plain_python() -> None:
    """One organisation, every block as it is completed."""
    events, rate, ridge = some_stream(), 0.2, 0.05
    held, ratings = [list(range(12))], stream(events, [list(range(12))])
    sizes = {"num_factors": 3, "num_rounds": 1}
    start = run("saros", ratings, learning_rate=1e-30, **sizes)
    finished = run("saros", ratings, window=64, learning_rate=rate, regularization=ridge, **sizes)
    vectors = {("user", number): row.astype(float) for number, row in enumerate(start.user_factors)}
    vectors |= {("item", number): row.astype(float) for number, row in enumerate(start.item_factors)}
    learned = learned_slowly(events, held, vectors, 1, rate, ridge, 1)
    for number, row in enumerate(finished.item_factors):
        np.testing.assert_allclose(row, learned["item", number], atol=2e-5)


def test_users_with_too_few_or_too_many_blocks_are_not_learned_from() -> None:
    """User 0 completes one block, user 1 two, user 2 three; with limits of 2 it is as if user 1 were alone."""
    bad_good = [(0, False), (1, True)]
    events = [(user, item, sign) for user in range(3) for _ in range(user + 1) for item, sign in bad_good]
    events += [(user, 2, False) for user in range(3)]
    usual = {"num_factors": 2, "num_rounds": 1, "window": 4, "learning_rate": 0.5}
    limited = run("saros", stream(events, [[0, 1, 2]]), min_blocks=2, max_blocks=2, **usual)
    alone = run("saros", stream([one for one in events if one[0] == 1], [[0, 1, 2]]), **usual)
    np.testing.assert_array_equal(limited.item_factors, alone.item_factors)
    np.testing.assert_array_equal(limited.user_factors[1], alone.user_factors[1])
    for limits in ({"min_blocks": 2}, {"max_blocks": 2}, {}):
        other = run("saros", stream(events, [[0, 1, 2]]), **limits, **usual)
        assert (other.item_factors != limited.item_factors).any()


def test_limits_that_leave_nobody_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"\Amin_blocks=3 is above max_blocks=2; nobody is left\Z"):
        SYSTEMS["saros"].configure({"min_blocks": 3, "max_blocks": 2})


def test_limits_go_on_after_a_stop(tmp_path: Path) -> None:
    system, data = SYSTEMS["saros"], synthetic(24, 30, 300)
    values = {"epochs": 2, "parts": 2, "num_factors": 4, "min_blocks": 1, "max_blocks": 3}
    job = job_for(system, system.configure(values), 0, data)

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.round_number > 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_job(job, RuntimeOptions(threads=1), tmp_path / "state.npz", stop)
    resumed = run_job(job, RuntimeOptions(threads=1), tmp_path / "state.npz")
    whole = run_job(job, RuntimeOptions(threads=1))
    np.testing.assert_array_equal(resumed.state.item_factors, whole.state.item_factors)


def test_the_original_settings() -> None:
    """4 factors, and good is what is rated 4 or 5; 3 is good by default, as in DRIFT's report."""
    system, data = SYSTEMS["saros"], synthetic(24, 30, 300)
    config = system.configure({"preset": "original"})
    assert (config.num_factors, config.positive_from) == (4, 4)
    good, usual = (
        job_for(system, one, 0, data).train.ratings for one in (config, system.configure({"preset": "usual"}))
    )
    np.testing.assert_array_equal(good, data.ratings >= 4)
    np.testing.assert_array_equal(usual, data.ratings >= 3)
    split = next(splits_for(system, data, settings_for(system, split="random"), config))
    assert split.train.ratings.sum() + split.test.ratings.sum() == (data.ratings >= 4).sum()
    again = job_for(system, config, 0, job_for(system, config, 0, data).train)
    np.testing.assert_array_equal(again.train.ratings, good)


def test_windows_change_no_more_than_roundings() -> None:
    one, other = (run("saros", some_events(1), **{**USUAL, "window": window}) for window in (5, 1000))
    np.testing.assert_allclose(one.item_factors, other.item_factors, atol=1e-5)


def test_without_its_owner_it_stops_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Ano owner holds an item; bring owners with items\Z"):
        run("saros", some_events(1), losses=losing((2, Register, 0)))


def test_data_of_many_owners_are_learned_in_one_place() -> None:
    system, data = SYSTEMS["saros"], synthetic(24, 30, 300)
    config = system.configure({"epochs": 1, "num_factors": 4})
    dealt = prepared(SYSTEMS["drift"], data)
    assert len(dealt.holding.names) == 5
    found = [
        run_job(job_for(system, config, 0, one), RuntimeOptions(threads=1)).state.item_factors
        for one in (data, dealt)
    ]
    np.testing.assert_array_equal(*found)


@dataclass(frozen=True)
class WithoutSalts(Message):
    """Reveals: what `SentInteractions` does; it is what that was before it had salts."""

    sender, receiver = SentInteractions.sender, SentInteractions.receiver
    has_own_cipher = True
    window: Any = each(np.int64)
    sequences: Any = ragged(np.int64)
    flags: Any = ragged(np.uint8, 2)
    contents: Any = ragged(np.uint8, 2)


WithoutSalts.__module__, WithoutSalts.__qualname__ = SentInteractions.__module__, SentInteractions.__qualname__
WithoutSalts.__name__ = SentInteractions.__name__


def without_salts(one: Recorded) -> Recorded:
    if not isinstance(one.message, SentInteractions):
        return one
    assert not one.message.salt_low.any()
    assert not one.message.salt_high.any()
    kept = {kind.name: getattr(one.message, kind.name) for kind in WithoutSalts.kinds()}
    return one._replace(message=WithoutSalts(**kept))


def test_golden_transcript() -> None:
    """Of one window, without the gradients: exponentials are not the same on every machine.

    Interactions in the clear have empty salts. Without these columns the transcript is what it always was.
    """
    finished = run("saros", some_events(1, 6, 20), num_factors=3, num_rounds=1, window=1000)
    assert digest(finished, BlockGradients) == GOLDEN
    recorded = finished.transcript.recorded
    recorded[:] = [without_salts(one) for one in recorded]
    assert digest(finished, BlockGradients) == GOLDEN_BEFORE_SALTS

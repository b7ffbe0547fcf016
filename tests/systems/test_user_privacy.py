"""Systems whose clients add noise to secure sums: the same bits everywhere, and a ledger that counts all of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.federation import Federation, in_process, small, split_for
from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.secure_sum.messages import MaskedNumbers, NoisyNumbers
from hushrec.privacy.secure_sum.noise import clipped, noise_for, with_noise
from hushrec.privacy.user_privacy import WARNING
from hushrec.protocol import AnySystem, Role, result_arrays
from hushrec.registry import system_named
from hushrec.runs.record import read_run
from hushrec.runs.suiting import plan_for
from hushrec.runtime.checkpoint import load_progress, save_progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import run_job
from hushrec.systems import fedrec
from hushrec.testing import SystemContract
from hushrec.testing.checks import assert_arrays
from hushrec.testing.small_runs import finish, finish_on_nodes
from systems.test_secure_sums import OWN, job_of, run_of

NOISE: dict[str, Any] = {"secure_sums": True, "noise_multiplier": 1.5}
MASKED: dict[str, Any] = {**NOISE, "secure_masks": "real"}


class PrivateContract(SystemContract):
    """The contract of a system with noise in its secure sums."""

    @classmethod
    def _chosen(cls) -> AnySystem:
        system = system_named(cls.system)
        own = {**system.about.small, **OWN[cls.system], **NOISE, "noise_multiplier": 0.01}
        plain = {"secure_sums": False, "noise_multiplier": 0.0}
        real = {"noise_multiplier": 0.0, "secure_masks": "real"}
        hidden = () if cls.system != "fedncf" else ({**plain, "rho": 1, "denoisers": 3},)
        few = {"noise_multiplier": 0.0, "secure_least_raters": 2}
        variants = (plain, real, few, {"noise_multiplier": 0.0}, *hidden)
        presets = {  # counts of popularity are refused with noise
            name: {key: value for key, value in values.items() if key != "from_popularity"}
            for name, values in system.about.presets.items()
        }
        return replace(system, about=replace(system.about, small=own, variants=variants, presets=presets))


class TestPrivateFedRec(PrivateContract):
    system = "fedrec"


@pytest.mark.slow
class TestPrivateFedNCF(PrivateContract):
    system = "fedncf"


# --- The same bits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_masks_cancel_and_leave_the_noise(name: str) -> None:
    """Real masks and counted ones end with the same bits, and others than without noise."""
    plain, counted, real = (run_of(job_of(name, **values)) for values in ({}, NOISE, MASKED))
    assert_arrays(real.results, counted.results)
    server = result_arrays(counted.states[-1])
    assert any((array != result_arrays(plain.states[-1])[key]).any() for key, array in server.items())
    assert not counted.sent(MaskedNumbers)
    assert not real.sent(NoisyNumbers)

    def sizes(finished: Any) -> list[int]:
        return [
            tally.payload_bytes
            for (_, kind), tally in sorted(finished.transcript.tallies.items(), key=lambda one: one[0][0])
            if kind in (MaskedNumbers, NoisyNumbers)
        ]

    assert sizes(counted) == sizes(real)


def test_one_round_by_hand() -> None:
    """What the server moves V by is the sum of clipped gradients and noise, over the counts and what steadies."""
    job = job_of("fedrec", rho=0, num_rounds=1, learning_rate=0.5, decay=1.0, **NOISE)
    plain, noisy = run_of(job_of("fedrec", rho=0, num_rounds=1)), run_of(job)
    noise = noise_for(24, 30 * 6, _size(), 1, job.config)
    total, key = np.zeros(30 * 6, np.int64), Draws(job.seed).key("user-noise")
    (sent,) = plain.sent(fedrec.ItemGradients)
    norms = []
    for place, number in enumerate(sent.numbers.tolist()):
        fold = ExactSum.zeros((30, 5), 1)
        fold.add(sent.numbers[place : place + 1], sent.message.part(place, place + 1))  # type: ignore[arg-type]
        total += with_noise(fold.words(), fold, noise, key, number, 0)
        norms.append(np.linalg.norm(clipped(fold.words(), fold, noise) / 2.0**40))
    assert max(norms) <= 1 < 1.001 * min(norms), "all clients have more than one rating, and are clipped"
    gradients, counts = total[:150].reshape(30, 5) / 2.0**40, np.rint(total[150:] / 2.0**39).clip(0)
    honest = 24 - 2 - 1
    steady = 2.0 * 1.5 * np.sqrt(24 / honest) / 0.5  # twice the deviation of a count's noise
    before = noisy.states[0].item_factors
    means = np.where(counts[:, None] > 0, (gradients + steady * before) / (counts[:, None] + steady), 0)
    np.testing.assert_allclose(noisy.states[1].item_factors, before - 0.5 * means, atol=1e-6)


def _size() -> Any:
    return fedrec.UPLOADS[fedrec.ItemFactors].size(None)


@pytest.mark.parametrize("name", ["fedrec", "fedrec-bpr", "fcf", "fedncf"])
def test_threads_cohorts_and_nodes_end_with_the_same_bits(name: str, tmp_path: Path) -> None:
    job = job_of(name, **MASKED)
    alone, start = run_of(job), job.start()
    together = finish(
        job.system, job.config, Draws(job.seed), start.state, start.private, threads=2, cohort_size=5
    )
    assert_arrays(together.results, alone.results)
    state, _, _ = finish_on_nodes(job, tmp_path)
    assert_arrays(result_arrays(state), result_arrays(alone.states[-1]))


@pytest.mark.parametrize("masks", [NOISE, MASKED])
def test_a_run_that_was_interrupted_ends_with_the_same_bits(masks: dict[str, Any], tmp_path: Path) -> None:
    """Noise goes on where it stopped: no draw is used in two rounds."""
    job, options = job_of("fedrec", **masks), RuntimeOptions(threads=1)
    whole = run_job(job, options)
    half = run_job(job, options, is_enough=lambda progress: progress.round_number == 1)
    save_progress(tmp_path / "state.npz", job.system, half)
    begun = load_progress(tmp_path / "state.npz", job.system, job.start())
    assert begun.private.sum_answers.any()
    resumed = run_job(job, options, tmp_path / "state.npz")
    assert_arrays(result_arrays(resumed.state), result_arrays(whole.state))
    np.testing.assert_array_equal(whole.private.sum_attempts, 2)


def test_no_audit_sees_noise_without_masks() -> None:
    with pytest.raises(HushrecError, match=r"\ANoisyNumbers stands for a message that was not made.*\Z"):
        run_of(job_of("fedrec", **NOISE)).transcript.seen_by(Role.SERVER)


# --- Who is lost, who diverges, who is asked too often ---------------------------------------------------------


def test_who_is_lost_takes_its_noise_along_and_enough_is_left() -> None:
    """The sum is that of the survivors; its noise is theirs, and that is at least what was promised."""
    job = job_of("fedrec", rho=0, num_rounds=1, **NOISE)
    lost = run_of(job, lambda _round, request, to: (to < 2) & (request is fedrec.ItemFactors))
    assert (lost.states[1].counted_round[:2] == 0).all()
    noise = noise_for(24, 180, _size(), 1, job.config)
    assert noise.least_honest == 21
    assert noise.deviation(22) > 1.5


def test_one_client_that_diverges_is_not_told_of() -> None:
    """Without noise an error names it; with noise it adds nothing but noise, as one without ratings does."""
    job = job_of("fedrec", rho=0, num_rounds=1, **NOISE)
    start = job.start()
    start.private.ratings[start.private.starts[3] : start.private.starts[4]] = 1e30
    ended = finish(job.system, job.config, Draws(0), start.state, start.private)
    assert np.isfinite(ended.states[-1].item_factors).all()
    without = job.start()
    first, last = without.private.starts[3:5]
    without.private.ratings[first:last] = np.nan
    other = finish(job.system, job.config, Draws(0), without.state, without.private)
    np.testing.assert_array_equal(ended.states[-1].item_factors, other.states[-1].item_factors)


def test_clients_refuse_more_sums_than_their_epsilon_is_for() -> None:
    with pytest.raises(HushrecError, match=r"\Aa participant was in 2 sums, and its epsilon is for no more.*\Z"):
        run_of(job_of("fedrec", most_sums=2, **NOISE))


# --- The ledger ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "per_round"), [("fedrec", 1), ("fedrec-bpr", 1), ("sdcf", 1), ("fcf", 1), ("fedmf", 1), ("fedncf", 2)]
)
@pytest.mark.parametrize("masks", ["counted", "real"])
def test_the_ledger_counts_every_sum_that_a_user_is_in(name: str, per_round: int, masks: str) -> None:
    pytest.importorskip("dp_accounting")
    job = job_of(name, secure_sums=True, secure_masks=masks, epsilon_total=3.0)
    finished = run_of(job)
    promises = job.system.result.promises(finished.private, job.config)
    assert promises["releases that one user is in"] == 3 * per_round
    assert 2.98 <= promises["epsilon of these together, delta 1e-05"] <= 3.0
    assert WARNING in job.system.result.warnings(job.config)
    plain = job_of(name, secure_sums=True)
    assert job.system.result.promises(run_of(plain).private, plain.config) == {}
    assert WARNING not in job.system.result.warnings(plain.config)


def test_with_participation_only_sums_that_somebody_was_in_count() -> None:
    pytest.importorskip("dp_accounting")
    job = job_of("fedrec", num_users=60, participation=0.4, epsilon_total=3.0, secure_sums=True)
    finished = run_of(job)
    promises = job.system.result.promises(finished.private, job.config)
    most = int(np.bincount(np.concatenate([one.numbers for one in finished.sent(NoisyNumbers)])).max())
    assert promises["releases that one user is in"] == most <= 3


def test_a_deployed_run_has_the_same_bits_and_ledger_and_no_metrics(tmp_path: Path) -> None:
    """Metrics would be measured on users' own ratings, without noise."""
    pytest.importorskip("dp_accounting")
    config = small("fedrec", rho=0, secure_sums=True, epsilon_total=3.0)
    ordered = Federation(tmp_path, 3, split_for("fedrec", 3), seed=3).order("fedrec", config)
    assert ordered.drive().status == "done"
    expected = in_process("fedrec", config, split_for("fedrec", 3))
    ordered.assert_equals(expected)
    fold, system = read_run(ordered.folder).folds[0], system_named("fedrec")
    assert fold.metrics == {}
    assert fold.facts == system.result.promises(expected.progress.private, system.configure(config))
    assert 2.98 <= fold.facts["epsilon of these together, delta 1e-05"] <= 3.0


# --- What is refused beside it -----------------------------------------------------------------------------------


def test_releases_that_no_ledger_counts_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"epsilon_total=8.0 is of secure sums; add secure_sums=True"):
        system_named("fedrec").configure({"epsilon_total": 8.0})
    with pytest.raises(HushrecError, match=r"leave one out"):
        system_named("fedrec").configure({**NOISE, "epsilon_total": 8.0})
    for name in ("fcf", "fedmf", "fedncf"):
        values = {**OWN[name], **NOISE, "from_popularity": True, "biases": True, "encryption": "none"}
        known = system_named(name).config.__dataclass_fields__
        with pytest.raises(HushrecError, match=r"noise would drown the counts of from_popularity=True"):
            system_named(name).configure({key: value for key, value in values.items() if key in known})


def test_nothing_is_chosen_on_ratings_without_noise() -> None:
    system, data = system_named("fedrec"), synthetic(30, 20, 300)
    plan = plan_for(system, {"preset": "general", **NOISE}, data.name)
    assert not plan.stops_early
    assert not plan.has_free_rate
    assert plan_for(system, {"preset": "general"}, data.name).stops_early
    with pytest.raises(HushrecError, match=r"\A--stop-early looks at users' ratings without noise.*\Z"):
        plan_for(system, {"preset": "general", **NOISE}, data.name, stop_early=True)

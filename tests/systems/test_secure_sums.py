"""Systems with secure sums keep the contract, survive losses, and end with the bits of plain sums."""

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.messages import MESSAGES, MaskedNumbers, SendKeys, SendShares, Shares, Unmask
from hushrec.protocol import AnySystem, Message, Numbers, Role, result_arrays
from hushrec.registry import system_named
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.systems import fcf, fedmf, fedncf, fedrec
from hushrec.testing import SystemContract
from hushrec.testing.checks import assert_arrays
from hushrec.testing.small_runs import Finished, finish, settings_for

SECURE = {"secure_sums": True}
REAL = {"secure_sums": True, "secure_masks": "real"}
OWN: dict[str, dict[str, Any]] = {
    "fedrec": {},
    "sdcf": {},
    "fcf": {},
    "fedmf": {},
    "fedncf": {"rho": 0, "denoisers": 0},
    "fedrec-bpr": {"rho": 0, "denoisers": 0},
}


HIDDEN = {"secure_sums": False, "rho": 1, "denoisers": 3}  # otherwise than by secure sums


class SecureContract(SystemContract):
    """The contract of a system with secure sums."""

    masks: ClassVar[str] = "real"
    more: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _chosen(cls) -> AnySystem:
        system = system_named(cls.system)
        small = {**system.about.small, **OWN[cls.system], "secure_sums": True, "secure_masks": cls.masks}
        small |= cls.more
        settings = {entry.name for entry in fields(system.config)}
        shares = ({**HIDDEN, "shares": 2},) if "shares" in settings else ()
        hidden = (HIDDEN, *shares) if OWN[cls.system] else ()
        own = () if cls.system != "fedmf" else ({"secure_sums": False},)
        leaves_out = "secure_least_raters" in settings
        few = ({"secure_masks": "counted", "secure_least_raters": 2},) if leaves_out else ()
        masks = {"secure_masks": "real"}, {"secure_masks": "counted"}
        noisy = {"secure_masks": "counted", "secure_least_raters": 1, "noise_multiplier": 1.0}
        if not leaves_out:
            del noisy["secure_least_raters"]
        variants = ({"secure_sums": False}, *masks, *few, noisy, *hidden, *own)
        return replace(system, about=replace(system.about, small=small, variants=variants))


class TestSecureFedRec(SecureContract):
    system = "fedrec"


class TestCountedFedRec(SecureContract):
    system, masks = "fedrec", "counted"


@pytest.mark.slow
class TestFedRecWithoutFewRaters(SecureContract):
    system = "fedrec"
    more: ClassVar[dict[str, Any]] = {"secure_least_raters": 2, "secure_count_noise": 1.0, "secure_together": 3}


@pytest.mark.slow
class TestSecureSDCF(SecureContract):
    system = "sdcf"


class TestSecureFCF(SecureContract):
    system = "fcf"


@pytest.mark.slow
class TestSecureFedMF(SecureContract):
    system = "fedmf"


@pytest.mark.slow
class TestSecureFedNCF(SecureContract):
    system = "fedncf"


@pytest.mark.slow
class TestSecureFedRecBPR(SecureContract):
    system = "fedrec-bpr"


# --- The same bits as plain sums -----------------------------------------------------------------------------


def job_of(name: str, num_users: int = 24, **values: Any) -> Job:
    system = system_named(name)
    config = system.configure(settings_for(system, 3, {**system.about.small, **OWN[name], **values}))
    data = synthetic(num_users, 30, 12 * num_users)
    return Job(system, config, 0, prepared(system, system.holders.sample(data, 0)))


def run_of(job: Job, losses: Any = None, threads: int = 1) -> Finished:
    start = job.start()
    return finish(
        job.system, job.config, Draws(job.seed), start.state, start.private, losses=losses, threads=threads
    )


@pytest.mark.parametrize("name", OWN)
def test_masks_change_no_bit_and_counted_bytes_are_those_of_real_masks(name: str) -> None:
    plain, counted, real = (run_of(job_of(name, **values)) for values in ({}, SECURE, REAL))
    assert_arrays(counted.results, plain.results)
    assert_arrays(real.results, plain.results)

    def sizes(finished: Finished) -> dict[tuple[int, str], tuple[int, int]]:
        sums: dict[tuple[int, str], tuple[int, int]] = {}
        for (number, kind), tally in finished.transcript.tallies.items():
            place = number, "upload" if _is_upload(kind) else kind.__name__
            messages, payload_bytes = sums.get(place, (0, 0))
            sums[place] = messages + tally.messages, payload_bytes + tally.payload_bytes
        return sums

    assert sizes(counted) == sizes(real)
    assert sizes(real) != sizes(plain)


def _is_upload(kind: type[Message]) -> bool:
    return kind is MaskedNumbers or kind.is_stand_in


@pytest.mark.parametrize("name", OWN)
def test_the_server_is_sent_no_reply_in_the_clear(name: str) -> None:
    """Of what clients answer, only masked numbers, and what says no more than that they are there."""
    seen = {type(one.message) for one in run_of(job_of(name, **REAL)).transcript.seen_by(Role.SERVER)}
    replies = {kind for kind in seen if kind.receiver == Role.SERVER} - set(MESSAGES)
    assert MaskedNumbers in seen
    assert {kind.__name__ for kind in replies} == {"Settled"}


STEPS = {"fedrec": fedrec.ItemFactors, "fcf": fcf.ItemFactors, "fedmf": fedmf.system.EncryptedFactors}


@pytest.mark.parametrize("masks", ["real", "counted"])
@pytest.mark.parametrize("step", ["keys", "shares", "masks", "unmasking"])
@pytest.mark.parametrize("name", ["fedrec", "fedmf", "fedncf"])
def test_who_is_lost_in_a_step_is_not_in_the_sum(name: str, step: str, masks: str) -> None:
    """Equal to the plain run without the same clients; who is lost when masks are taken out is in the sum."""
    request = fedncf.system.Model if name == "fedncf" else STEPS[name]
    asked = {"keys": SendKeys, "shares": SendShares, "masks": request, "unmasking": Unmask}[step]

    def lost_in(kind: type[Message]) -> Any:
        def losses(number: int, asking: type[Message], to: Numbers) -> Any:
            return np.isin(to, [4, 17]) & (number == 2) & (asking is kind)

        return losses

    plain = run_of(job_of(name), None if step == "unmasking" else lost_in(request))
    secure = run_of(job_of(name, secure_sums=True, secure_masks=masks), lost_in(asked))
    assert_arrays(result_arrays(secure.states[-1]), result_arrays(plain.states[-1]))
    assert_arrays(result_arrays(secure.private), result_arrays(plain.private))


@pytest.mark.parametrize("masks", ["real", "counted"])
def test_too_many_lost_are_an_error_in_one_line(masks: str) -> None:
    """Two of 24 may be lost."""
    job = job_of("fedrec", secure_sums=True, secure_masks=masks)
    with pytest.raises(
        HushrecError, match=r"\A21 of 24 have survived and 22 are needed, so nothing is unmasked.*\Z"
    ):
        run_of(job, lambda _round, request, to: (to < 3) & (request is fedrec.ItemFactors))


def test_letters_of_a_cohort_are_told_from_each_other() -> None:
    """A party's view of mail has what was written to it, and who wrote what it wrote itself."""
    finished = run_of(job_of("fedrec", **REAL), threads=2)
    for sent in finished.sent(Shares, 1):
        np.testing.assert_array_equal(sent.writers(), sent.message.writer)  # type: ignore[attr-defined]


# --- Nobody audits or deploys what stands for masks ----------------------------------------------------------


def test_a_run_with_counted_masks_has_no_view() -> None:
    finished = run_of(job_of("fedrec", **SECURE))
    with pytest.raises(HushrecError, match=r"\AUnmaskedItemGradients stands for a message that was not made.*\Z"):
        finished.transcript.seen_by(Role.SERVER)


def test_what_is_recorded_is_what_the_server_sees() -> None:
    progress = run_job(job_of("fedrec", **SECURE), RuntimeOptions(threads=1, keep_payloads=True))
    kinds = {type(one.message) for one in progress.transcript.seen_by(Role.SERVER)}
    assert MaskedNumbers in kinds
    assert fedrec.ItemGradients not in kinds


# --- Settings ------------------------------------------------------------------------------------------------


def test_other_ways_to_hide_are_refused_beside_it() -> None:
    with pytest.raises(HushrecError, match=r"add encryption=.none"):
        system_named("fedmf").configure(SECURE)
    with pytest.raises(HushrecError, match="add denoisers=0 and rho=0"):
        system_named("fedncf").configure({**SECURE, "rho": 1, "denoisers": 2})
    with pytest.raises(HushrecError, match="add rho=0 and denoisers=0"):
        system_named("fedrec-bpr").configure(SECURE)
    for name in ("fedrec++", "sdcf-denoised"):
        with pytest.raises(HushrecError, match="unknown setting secure_sums"):
            system_named(name).configure(SECURE)


# --- Who stays together --------------------------------------------------------------------------------------

TOGETHER = {"rho": 0, "secure_sums": True, "secure_together": 3, "participation": 0.25, "secure_dropouts": 0.3}


@pytest.mark.parametrize("masks", ["real", "counted"])
def test_a_round_that_would_tell_of_one_passes_without_an_update(masks: str) -> None:
    """Six of 24 in each of four groups. All four take part twice; one is lost when the first comes again."""
    job = job_of("fedrec", **TOGETHER, secure_masks=masks, num_rounds=6)
    groups = [run_of(job).sent(SendKeys, number) for number in (1, 2, 3, 4, 5, 6)]
    who = [np.concatenate([one.numbers for one in group]).tolist() for group in groups]
    assert sorted(number for group in who[:4] for number in group) == list(range(24))
    assert who[4] in who[:4]
    one = who[4][2]
    lost = run_of(job, lambda number, request, to: (to == one) & (number == 5) & (request is fedrec.ItemFactors))
    assert not lost.sent(Unmask, 5), "nothing is unmasked"
    before, after = (state.item_factors for state in (lost.states[4], lost.states[5]))
    np.testing.assert_array_equal(before, after)
    assert (lost.states[5].counted_round[who[4]] < 5).all()
    sizes = np.unique(lost.states[-1].sum_blocks, return_counts=True)[1]
    assert sizes.tolist() == [6, 6, 6, 6]


@pytest.mark.parametrize("name", OWN)
def test_who_is_missing_at_the_start_stays_out_with_some_others(name: str) -> None:
    """In round 2 client 4 sends no key: of its block three are not in the sum."""
    values = {"secure_sums": True, "secure_together": 3}
    finished = run_of(
        job_of(name, **values), lambda number, kind, to: (to == 4) & (number == 2) & (kind is SendKeys)
    )
    sizes = np.unique(finished.states[2].sum_blocks, return_counts=True)[1]
    assert sizes.min() >= 3
    assert 3 in sizes.tolist()

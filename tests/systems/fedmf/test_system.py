from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.privacy import homomorphic
from hushrec.privacy.homomorphic import BfvAdder, PaillierKey
from hushrec.runtime.checkpoint import Progress, model_digest
from hushrec.runtime.checkpoint import digest as digest_of
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems.fedmf import system as fedmf
from hushrec.systems.fedmf.clients import to_fixed
from systems.positive_runs import Finished, Positives, assert_same, positives, run, some_positives
from systems.runs import digest

GOLDEN = "8c6886daa3e6833ff65e53f5fbaa435f284113403630e56087deba95161fbc06"


def fit(data: Positives, **options: Any) -> Finished:
    return run(fedmf.SYSTEM, data, **{"encryption": "none", "learning_rate": 0.05, **options})


def in_two_blocks() -> Positives:
    """8 clients of whom some list items of one block of BFV only: 300 items of 20 factors are 6,000 numbers."""
    return positives([[0, 5], [10], [299], [1, 298], [], [7, 8, 9], [250], [30, 31]], 300)


def test_hand_worked_round() -> None:
    """U = (1, 1/2), V = (1/2, 1), gamma = 1/4, lambda = 0. User 0 has item 0, user 1 item 1; the other is drawn.

    User 0: e = 1 - 1/2 = 1/2, U = 1 + 1/2*1/2*1/2 = 1.125, step of V_0 = 1/2*1/2*1.125 = 0.28125;
    then e = 0 - 1.125, U = 1.125 - 1.125/2 = 0.5625, step of V_1 = -1/2*1.125*0.5625 = -0.31640625.
    User 1: e = 0 - 1/4, U = 1/2 - 1/16 = 0.4375, step of V_0 = -1/8*0.4375 = -0.0546875;
    then e = 1 - 0.4375, U = 0.4375 + 0.28125 = 0.71875, step of V_1 = 0.28125*0.71875 = 0.2021484375.
    """

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = [[1], [0.5]]
        start = to_fixed(np.array([[0.5], [1]], np.float32)).view(np.uint8)
        return replace(state, item_factors=start)

    finished = fit(
        positives([[0], [1]], 2),
        num_factors=1,
        num_rounds=1,
        learning_rate=0.25,
        regularization=0.0,
        prepare=prepare,
    )
    (uploads,) = finished.sent(fedmf.EncryptedSteps)
    assert uploads.message.places.values.tolist() == [0, 1, 0, 1]
    steps = uploads.message.blocks.values.view("<i4").ravel() / 2**20
    assert steps.tolist() == [0.28125, -0.31640625, -0.0546875, 0.2021484375]
    assert finished.private.user_factors.ravel().tolist() == [0.5625, 0.71875]
    assert finished.private.item_factors.ravel().tolist() == [0.7265625, 0.8857421875]


@pytest.mark.parametrize("variant", ["full", "part"])
def test_bfv_gives_the_same_model_as_no_encryption(variant: str) -> None:
    data, values = in_two_blocks(), {"num_factors": 20, "num_rounds": 3, "variant": variant}
    assert_same(fit(data, **values, encryption="bfv"), fit(data, **values))


@pytest.mark.parametrize("variant", ["full", "part"])
def test_models_are_equal_where_ciphertexts_are_not(variant: str) -> None:
    """The digest of the model is of V as clients hold it."""
    data, values = in_two_blocks(), {"num_factors": 20, "num_rounds": 2, "variant": variant}
    found = [fit(data, **values, encryption=one) for one in ("bfv", "bfv", "none")]
    assert len({one.state.item_factors.tobytes() for one in found}) == 3
    models = {model_digest(one.state, one.private) for one in found}
    assert models == {digest_of({"item_factors": found[2].private.item_factors})}
    other = fit(data, **values, seed=1)
    assert model_digest(other.state, other.private) not in models


@pytest.fixture
def short_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of Paillier that is too short to be safe, to spare time; 15 numbers per ciphertext."""
    key = PaillierKey.from_seed(Draws(0).key("fedmf-key"), bits=512)
    monkeypatch.setattr(homomorphic, "_paillier_key", lambda *_seed: key)


@pytest.mark.usefixtures("short_key")
@pytest.mark.parametrize("variant", ["full", "part"])
def test_paillier_gives_the_same_model_as_no_encryption(variant: str) -> None:
    data, values = positives([[0, 5], [16], []], 17), {"num_factors": 4, "num_rounds": 2, "num_negatives": 1}
    encrypted = fit(data, **values, encryption="paillier", variant=variant, cohort_size=100)
    assert_same(encrypted, fit(data, **values))
    lengths = encrypted.sent(fedmf.EncryptedSteps)[0].message.places.lengths
    assert (lengths < 5).all() if variant == "part" else (lengths == 5).all()


@pytest.mark.slow
def test_paillier_with_a_key_of_full_length() -> None:
    data, values = positives([[0, 5], [16]], 17), {"num_factors": 4, "num_rounds": 2}
    assert_same(fit(data, **values, encryption="paillier"), fit(data, **values))


def test_part_sends_the_blocks_of_listed_items_only() -> None:
    values = {"num_factors": 20, "num_rounds": 1, "num_negatives": 1, "encryption": "bfv", "cohort_size": 100}
    (full,) = fit(in_two_blocks(), **values).sent(fedmf.EncryptedSteps)
    assert full.message.places.lengths.tolist() == [2] * 8
    (part,) = fit(in_two_blocks(), **values, variant="part").sent(fedmf.EncryptedSteps)
    lengths = part.message.places.lengths.tolist()
    assert lengths[4] == 0
    assert {1, 2} <= set(lengths)
    (plain,) = fit(in_two_blocks(), **{**values, "encryption": "none"}, variant="part").sent(fedmf.EncryptedSteps)
    listed = [plain.message.places.part(k, k + 1).values for k in range(8)]
    touched = [np.unique((one[:, None] * 20 + np.arange(20)) // 4096).tolist() for one in listed]
    assert touched == [part.message.places.part(k, k + 1).values.tolist() for k in range(8)]


def test_the_server_holds_and_gets_no_plain_numbers() -> None:
    values = {"num_factors": 20, "num_rounds": 1, "cohort_size": 100}
    plain, finished = fit(in_two_blocks(), **values), fit(in_two_blocks(), **values, encryption="bfv")
    assert (finished.state.num_additions == 8).all()
    held = finished.state.item_factors.tobytes()
    (uploads,), (bare,) = finished.sent(fedmf.EncryptedSteps), plain.sent(fedmf.EncryptedSteps)
    sent = uploads.message.blocks.values.tobytes()
    factors = to_fixed(finished.private.item_factors)
    assert all(row[:2].tobytes() not in held for row in factors)
    assert all(row.tobytes() not in sent for row in bare.message.blocks.values)
    assert all(row[:2].tobytes() in plain.state.item_factors.tobytes() for row in factors)


@pytest.mark.parametrize("variant", ["full", "part"])
def test_bytes_of_the_stand_in_are_those_of_bfv(variant: str) -> None:
    """Sent one by one; a batch of the stand-in is counted to less than a byte per client."""
    data, values = in_two_blocks(), {"num_factors": 20, "num_rounds": 2, "variant": variant}
    real, plain = (fit(data, **values, encryption=one, cohort_size=1).transcript for one in ("bfv", "none"))
    for kind in (fedmf.EncryptedFactors, fedmf.EncryptedSteps, fedmf.Settle):
        assert plain.total(kind).payload_bytes == real.total(kind).payload_bytes
        assert plain.total(kind).messages == real.total(kind).messages
    down = real.total(fedmf.EncryptedFactors).payload_bytes
    assert down > 16 * 2 * BfvAdder.sum_bytes
    if variant == "full":
        assert real.total(fedmf.EncryptedSteps).payload_bytes > 16 * 2 * BfvAdder.fresh_bytes


def test_threads_and_cohorts_do_not_matter() -> None:
    data = some_positives()
    expected = fit(data, cohort_size=1)
    for threads, cohort_size in ((1, 7), (1, None), (2, 1), (2, 7)):
        assert_same(fit(data, threads=threads, cohort_size=cohort_size), expected)
    small = {"num_rounds": 2, "encryption": "bfv"}
    assert_same(fit(data, **small, threads=2, cohort_size=3), fit(data, num_rounds=2))


def test_golden_transcript() -> None:
    assert digest(fit(some_positives(6, 20), num_factors=3, num_rounds=2)) == GOLDEN


def test_negatives_are_drawn_anew_and_are_no_positives() -> None:
    data = some_positives(num_items=90)
    finished = fit(data, num_rounds=2, num_negatives=2, cohort_size=100)
    first, second = (sent.message.places for sent in finished.sent(fedmf.EncryptedSteps))
    num_positives = np.diff(data.rows.starts)
    assert first.lengths.tolist() == second.lengths.tolist() == np.minimum(3 * num_positives, 90).tolist()
    for user in range(data.num_users):
        mine = set(data.rows.items[data.rows.starts[user] : data.rows.starts[user + 1]].tolist())
        listed = [set(one.part(user, user + 1).values.tolist()) for one in (first, second)]
        assert mine <= listed[0] & listed[1]
        assert listed[0] != listed[1] or len(listed[0]) == 90


@pytest.mark.parametrize("encryption", ["none", "bfv"])
def test_same_ask_twice_gives_the_same_reply(encryption: str) -> None:
    finished = fit(some_positives(6), num_rounds=1, encryption=encryption, cohort_size=100)
    before = finished.private.user_factors.copy()
    (request,), (reply,) = finished.sent(fedmf.EncryptedFactors), finished.sent(fedmf.EncryptedSteps)
    again = finished.ask_again(request)
    np.testing.assert_array_equal(finished.private.user_factors, before)
    np.testing.assert_array_equal(again.places.values, reply.message.places.values)
    for one, other in zip(again.blocks.values, reply.message.blocks.values, strict=True):
        if encryption == "bfv":
            one, other = finished.private.key.decrypt(one), finished.private.key.decrypt(other)
        np.testing.assert_array_equal(one, other)


def test_lost_clients_do_not_count() -> None:
    """Nothing came: V stays as drawn. The last is lost: as if it were not there."""
    data, values = in_two_blocks(), {"num_factors": 20, "encryption": "bfv", "num_rounds": 2}
    nobody = fit(data, **values, losses=lambda _round, _request, to: to >= 0)
    assert not nobody.state.num_additions.any()
    start = fedmf.SYSTEM.start(8, 300, nobody.config, Draws(0))
    np.testing.assert_array_equal(nobody.state.item_factors, start.item_factors)
    lost = fit(data, num_factors=20, losses=lambda _round, _request, to: to == 7)
    alone = fit(positives([[0, 5], [10], [299], [1, 298], [], [7, 8, 9], [250]], 300), num_factors=20)
    np.testing.assert_array_equal(lost.scorer.item_factors, alone.scorer.item_factors)


@pytest.mark.parametrize("encryption", ["bfv", "none"])
def test_resumed_is_as_if_never_interrupted(encryption: str, tmp_path: Path) -> None:
    """After 2 of 3 rounds all goes to disk; a fresh start, with the key from its seed, goes on from there."""
    data = synthetic(8, 300, 40)
    config = fedmf.SYSTEM.configure({"encryption": encryption, "num_factors": 20, "num_rounds": 3})
    job, options, path = Job(fedmf.SYSTEM, config, 0, data), RuntimeOptions(threads=1), tmp_path / "state.npz"

    def stop(progress: Progress) -> None:
        if progress.round_number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job, options, path, stop)
    resumed, whole = run_job(job, options, path), run_job(job, options)
    assert resumed.round_number == 3
    np.testing.assert_array_equal(resumed.private.user_factors, whole.private.user_factors)
    np.testing.assert_array_equal(resumed.private.item_factors, whole.private.item_factors)
    assert resumed.transcript.tallies == whole.transcript.tallies


def test_another_key_is_noticed() -> None:
    finished = fit(in_two_blocks(), num_factors=20, num_rounds=2, encryption="bfv")
    stranger = fedmf.SYSTEM.enrol(
        np.arange(8, dtype=np.int32), in_two_blocks().rows, 300, finished.config, Draws(1)
    )
    with pytest.raises(DivergedError, match="V is out of range, or nodes have different keys"):
        stranger.open(finished.state.item_factors, finished.state.num_additions)


def test_steps_that_could_wrap_are_refused() -> None:
    with pytest.raises(
        DivergedError, match=r"round 1: a step of client \d+ is too large to be added up; .*learning_rate="
    ):
        fit(some_positives(), learning_rate=1e4, initial_scale=16.0)


def test_more_updates_than_bfv_bears_are_refused_at_the_start() -> None:
    config = fedmf.SYSTEM.configure({"num_rounds": 300})
    with pytest.raises(
        HushrecError, match=r"2517900 updates are more noise than .* 2097152; use fewer num_rounds="
    ):
        fedmf.SYSTEM.start(8392, 10, config, Draws(0))
    fedmf.SYSTEM.start(8392, 10, replace(config, encryption="none"), Draws(0))


def test_v_in_other_blocks_is_refused() -> None:
    finished = fit(some_positives())
    with pytest.raises(HushrecError, match="V came in 29 blocks, not the 30 of this catalogue; send those"):
        finished.private.open(finished.state.item_factors[:-1], finished.state.num_additions[:-1])


def test_planted_tastes_are_learned() -> None:
    """Even users have 10 of 20 even items, odd users of odd ones: the best of the others must be of their kind.

    By chance that happens to all 40 with 3^-40. Newcomers and clients alone are served as well.
    """
    draws = np.random.default_rng(0)
    data = positives([draws.choice(np.arange(user % 2, 40, 2), 10, replace=False) for user in range(40)], 40)
    finished = fit(data, num_rounds=60, learning_rate=0.02)
    alone = fedmf.SYSTEM.result.party(finished.private, finished.config, None)
    users = np.arange(40, dtype=np.int32)
    scores, newcomers = finished.scorer.score(users), np.empty((40, 40), np.float32)
    np.testing.assert_array_equal(alone.score(users), scores)
    np.testing.assert_allclose(finished.scorer.predict(users, users), np.diag(scores), rtol=1e-5, atol=1e-6)
    for user in range(40):
        items = data.rows.items[data.rows.starts[user] : data.rows.starts[user + 1]]
        newcomers[user] = finished.scorer.fold_in(items, np.ones(len(items), np.float32))
        scores[user, items] = newcomers[user, items] = -np.inf
    np.testing.assert_array_equal(scores.argmax(axis=1) % 2, users % 2)
    np.testing.assert_array_equal(newcomers.argmax(axis=1) % 2, users % 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_factors": 0}, "num_factors="),
        ({"num_rounds": 0}, "num_rounds="),
        ({"num_negatives": 0}, "num_negatives="),
        ({"epochs": 0}, "epochs="),
        ({"participation": 1.5}, "participation=1.5 is not in"),
        ({"learning_rate": -1.0}, "learning_rate="),
        ({"regularization": -1.0}, "regularization="),
        ({"initial_scale": 17.0}, "initial_scale="),
        ({"encryption": "rot13"}, "bad setting encryption='rot13'"),
        ({"variant": "half"}, "bad setting variant='half'"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        fedmf.SYSTEM.configure(values)

"""FedNCF with denoisers: lossless to the last bit, whoever is lost, and what the server sees instead."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.masking import fixed_point
from hushrec.protocol import Cohort, Role
from hushrec.runtime.in_process import Losses
from hushrec.runtime.training import Job
from hushrec.systems.fedncf import clients, denoised
from hushrec.systems.fedncf import system as fedncf
from hushrec.testing import SystemContract
from systems.positive_runs import Finished, Positives, assert_same, positives, run, some_positives
from systems.runs import losing

ONE = 1 << 40  # in fixed point


class TestWithoutDenoisers(SystemContract):
    """The contract's small settings have denoisers; this is FedNCF as published."""

    system = "fedncf"
    test_only_declared_messages_are_sent_and_all_of_them = None

    def _job(self, seed: int = 0, **values: Any) -> Job:
        return super()._job(seed, **{"rho": 0, "denoisers": 0, **values})


def fit(data: Positives, **options: Any) -> Finished:
    small = {"layers": (6, 5, 3), "participation": 1.0, "batch_size": 16}
    return run(fedncf.SYSTEM, data, **{**small, **options})


def assert_equal(one: Finished, other: Finished) -> None:
    assert_same(one, other)
    np.testing.assert_array_equal(one.state.layers, other.state.layers)


def denoisers_in(finished: Finished, round_number: int) -> dict[int, list[int]]:
    """Clients by denoiser, as the first requests of a round said."""
    found: dict[int, list[int]] = {}
    seen = set()
    for sent in finished.sent(denoised.ModelToHide, round_number):
        for client, denoiser in zip(sent.numbers.tolist(), sent.message.denoiser.tolist(), strict=True):
            if client not in seen:
                found.setdefault(denoiser, []).append(client)
                seen.add(client)
    return found


def test_hand_worked_round() -> None:
    """GMF with one factor: the score is b + g u v. V = (1, 2, 2, 2), g = 1, b = 0; Adam's first step has the size
    of the learning rate, 1/4, against the sign of the gradient. One virtual client; user 1 is the denoiser.

    User 0, u = 1, has item 0 (score 1, error s(1) - 1 = -0.27) and draws j (score 2, error s(2) = 0.88).
        v_0 goes up, v_j down; u and g: -0.27 * 1 + 0.88 * 2 > 0, down; b: 0.61 > 0, down.
        The other two items, k < l, are its virtual ones. One of two is a positive, as with real ones: the last, as
        both have a score above that of the real positive. From u = 1 as well: v_k down, v_l up. Both are noise.
    User 1, u = -1, has items 1 and 2 (score -2, error -0.88) and draws 0 (score -1, error 0.27) and 3 (score -2,
        error 0.12). v_0 and v_3: error times u < 0, up; v_1 and v_2: down; u: 0.27 + 0.24 - 3.52 < 0, up; g, which
        has u as a factor, down; b: 0.27 + 0.12 - 1.76 < 0, up.

    The denoiser sends noise less its own steps, counts less its own: of item 0, -1/4 and -1. The server takes them
    out of user 0's upload: item 0 has 1/4 + 1/4 of two, k and l what user 1 did alone, j -1/4 and what user 1 did.
    Layers: user 0 has 2 samples of 4 items, user 1 has 4. g = 1 - 1/4, b = (-1/2 + 1) / 4 / 1.5 = 1/12. User 0
    uploads (1/2, -1/8, -1/8) plus its mask, the denoiser sends the mask less (1, -1/4, 1/4).
    """

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = [[1], [-1]]
        item_factors, layers = np.array([[1], [2], [2], [2]], np.float32), np.array([1, 0], np.float32)
        return replace(state, item_factors=item_factors, layers=layers)

    finished = fit(
        positives([[0], [1, 2]], 4), variant="gmf", num_factors=1, num_rounds=1, num_negatives=1, epochs=1,
        learning_rate=0.25, rho=1, denoisers=1, prepare=prepare,
    )  # fmt: skip
    assert denoisers_in(finished, 1) == {1: [0]}
    (upload,), (noise,), (sums,) = (
        finished.sent(kind) for kind in (denoised.ListedSteps, denoised.Noise, denoised.DenoisingSums)
    )
    low, high = noise.message.items.values.tolist()
    (drawn,) = {1, 2, 3} - {low, high}
    assert low < high
    assert upload.message.items.values.tolist() == [0, 1, 2, 3]
    steps = np.zeros(4)
    steps[[0, drawn, low, high]] = [0.25, -0.25, -0.25, 0.25]
    np.testing.assert_allclose(upload.message.gradients.values.ravel(), steps, rtol=1e-5)
    np.testing.assert_allclose(noise.message.gradients.values.ravel(), [-0.25, 0.25], rtol=1e-5)
    own, counts = np.array([0.25, -0.25, -0.25, 0.25]), np.array([-1, -1, -1, -1])
    steps[[0, drawn]] = 0
    counts[[low, high]] += 1
    assert sums.message.items.values.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(sums.message.sums.values.ravel() / ONE, steps - own, rtol=1e-5)
    assert sums.message.counts.values.tolist() == counts.tolist()

    (masked,), (masks,), (summed,) = (
        finished.sent(kind) for kind in (denoised.MaskedLayers, denoised.LayerMasks, denoised.SummedMasks)
    )
    mask = masks.message.words.values
    np.testing.assert_allclose((masked.message.words.values - mask) / ONE, [1 / 2, -1 / 8, -1 / 8], rtol=1e-5)
    np.testing.assert_allclose((mask - summed.message.words.values) / ONE, [1, -1 / 4, 1 / 4], rtol=1e-5)

    moved = own.copy()
    moved[drawn] = (own[drawn] - 0.25) / 2
    np.testing.assert_allclose(finished.state.item_factors.ravel(), np.array([1, 2, 2, 2]) + moved, rtol=1e-6)
    np.testing.assert_allclose(finished.state.layers, [0.75, 1 / 12], rtol=1e-5)
    np.testing.assert_allclose(finished.private.user_factors.ravel(), [0.75, -0.75], rtol=1e-6)


# --- Without loss ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["gmf", "mlp", "neumf"])
@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_lossless(variant: str, participation: float) -> None:
    """The bits of FedNCF without noise, whatever rho and however many denoisers. Some clients list all items."""
    data, common = some_positives(24, 60), {"variant": variant, "participation": participation}
    clean = fit(data, **common)
    assert not clean.sent(denoised.ListedSteps)
    for rho, denoisers in ((0, 1), (1, 6), (3, 1), (3, 5)):
        hidden = fit(data, **common, rho=rho, denoisers=denoisers, threads=2, cohort_size=5)
        assert_equal(hidden, clean)
        assert len(denoisers_in(hidden, 1)) == denoisers
        assert not hidden.sent(fedncf.ItemSteps)


@pytest.mark.parametrize("variant", ["gmf", "mlp", "neumf"])
def test_lossless_with_biases_and_shrinkage(variant: str) -> None:
    """Means go over all who really listed an item, and so many more, noise or not; a bias is one more column."""
    data, values = some_positives(24, 60), {"variant": variant, "biases": True, "shrinkage": 3.0}
    clean, hidden = fit(data, **values), fit(data, **values, rho=3, denoisers=5)
    assert_equal(hidden, clean)
    without = fit(data, **{**values, "shrinkage": 0.0})
    assert (clean.state.item_factors != without.state.item_factors).any()


def test_noise_that_stays_in_would_be_seen() -> None:
    """What is uploaded is not what comes out: without denoisers, items would go elsewhere."""
    finished = fit(some_positives(24, 60), rho=3, denoisers=1, num_rounds=1)
    shown = ExactSum.zeros(finished.state.item_factors.shape, num_summands=24)
    for sent in finished.sent(denoised.ListedSteps):
        shown.add(sent.numbers, sent.message)
    moved = finished.states[1].item_factors - finished.states[0].item_factors
    assert (np.abs(moved - shown.mean()) > 1e-4).any(axis=1).mean() > 0.9


def test_a_server_that_asks_twice_gets_two_masks() -> None:
    """Asked again with other layers, a client hides what it has learned from them behind another mask.

    With one mask for both, the difference of the uploads would be that of the two steps. Asked again with the same
    model it answers the same, so that a round can begin again.
    """
    data = some_positives(6, 30)
    small = {"layers": (6, 5, 3), "participation": 1.0, "batch_size": 16}
    config = fedncf.SYSTEM.configure({**small, "denoisers": 1, "rho": 1})
    draws, numbers, to = Draws(7), np.arange(6, dtype=np.int32), np.zeros(1, np.int32)
    private = fedncf.enrol(numbers, data.rows, 30, config, draws)
    state = fedncf.start(6, 30, config, draws)
    cohort = Cohort(numbers[3:4], np.array([3]), private, 1, {})

    def asked(layers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        denoised.client_update(cohort, denoised.ModelToHide(state.item_factors, layers, to), config, draws)
        reply = denoised.client_layers(cohort, denoised.SendMaskedLayers(to), config, draws)
        table = clients.weighted_layers(private, cohort.rows, config.num_negatives)
        return reply.message.words.values, fixed_point(cohort.numbers, table)[0]

    (first, hidden), (second, other), (again, _) = (
        asked(layers) for layers in (state.layers, state.layers * 0, state.layers)
    )
    np.testing.assert_array_equal(first, again)
    assert (hidden != other).any()
    assert ((first - second) != (hidden - other)).all()


def test_the_largest_letter_is_known_before() -> None:
    """Masks are longer than the noise of whoever has few items."""
    finished = fit(some_positives(24, 60), rho=1, denoisers=3, num_rounds=1)
    told = fedncf.upload_bytes(finished.private, finished.config)
    for kind, row_bytes in (
        (denoised.LayerMasks, 8),
        (denoised.Noise, 4 * (1 + finished.config.shape.num_columns)),
    ):
        for sent in finished.sent(kind):
            assert int(sent.message.lengths.max()) * row_bytes <= int(told.max())
    (masks, *_) = finished.sent(denoised.LayerMasks)
    assert int(told.min()) >= 8 * int(masks.message.lengths[0])


# --- Who is lost -------------------------------------------------------------------------------------------


def assert_lossless_with(losses_of: Any, **values: Any) -> Finished:
    """With and without noise: the same bits, if the same are lost at the same time."""
    data, common = some_positives(24, 60), {"denoisers": 3, **values}
    hidden, clean = (fit(data, rho=rho, losses=losses_of(), **common) for rho in (3, 0))
    assert_equal(hidden, clean)
    return hidden


def first_denoiser(num_rounds: int = 2) -> tuple[int, list[int]]:
    """A denoiser of the last round, and its clients."""
    found = denoisers_in(fit(some_positives(24, 60), rho=1, denoisers=3, num_rounds=num_rounds), num_rounds)
    return next(iter(found.items()))


@pytest.mark.parametrize("request_type", [denoised.DenoiserModel, denoised.SendMaskSums])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_lost_denoiser_takes_its_clients_along_and_nothing_else(request_type: type, threads: int) -> None:
    """The oracle: FedNCF without denoisers whose last round is without that denoiser and its clients."""
    denoiser, its_clients = first_denoiser()
    data, gone = some_positives(24, 60), [denoiser, *its_clients]
    hidden = fit(
        data, rho=3, denoisers=3, num_rounds=2, threads=threads, losses=losing((2, request_type, denoiser))
    )
    clean = fit(data, num_rounds=2, losses=losing(*((2, fedncf.Model, one) for one in gone)))
    np.testing.assert_array_equal(hidden.state.item_factors, clean.state.item_factors)
    np.testing.assert_array_equal(hidden.state.layers, clean.state.layers)
    others = np.setdiff1d(np.arange(24), gone)
    np.testing.assert_array_equal(hidden.private.user_factors[others], clean.private.user_factors[others])
    assert len(hidden.sent(denoised.ModelToHide, 2)) == 2, "the round begins again"


def test_a_lost_denoiser_in_a_longer_run() -> None:
    def losses_of() -> Losses:
        return lambda number, request, to: (to % 5 == 0) & (number == 2) & (request is denoised.DenoiserModel)

    assert_lossless_with(losses_of, denoisers=8)


def test_all_denoisers_lost_nobody_counts() -> None:
    def losses_of() -> Losses:
        return lambda number, request, to: np.full(len(to), number == 2 and request is denoised.DenoiserModel)

    hidden = assert_lossless_with(losses_of)
    np.testing.assert_array_equal(hidden.states[2].item_factors, hidden.states[1].item_factors)
    np.testing.assert_array_equal(hidden.states[2].layers, hidden.states[1].layers)
    assert (hidden.states[3].item_factors != hidden.states[2].item_factors).any()


def test_clients_lost_before_their_layers_count_for_items_only() -> None:
    """All clients of a denoiser: it must not be asked for masks, of which it has none."""
    denoiser, its_clients = first_denoiser()
    gone = losing(*((2, denoised.SendMaskedLayers, one) for one in its_clients))
    data = some_positives(24, 60)
    hidden = fit(data, rho=3, denoisers=3, num_rounds=2, losses=gone)
    clean = fit(
        data, num_rounds=2, losses=losing(*((2, fedncf.SendLayers, one) for one in [denoiser, *its_clients]))
    )
    assert_equal(hidden, clean)
    asked = [number for sent in hidden.sent(denoised.SendMaskSums, 2) for number in sent.numbers.tolist()]
    assert len(asked) == 2
    assert denoiser not in asked


def test_a_lost_client_is_left_out_with_its_noise() -> None:
    _, its_clients = first_denoiser()
    data, gone = some_positives(24, 60), its_clients[:2]
    hidden = fit(
        data, rho=3, denoisers=3, num_rounds=2, losses=losing(*((2, denoised.ModelToHide, one) for one in gone))
    )
    clean = fit(data, num_rounds=2, losses=losing(*((2, fedncf.Model, one) for one in gone)))
    assert_equal(hidden, clean)


# --- What is seen, what is refused -------------------------------------------------------------------------


def test_the_server_sees_neither_noise_nor_masks_nor_plain_layers() -> None:
    finished = fit(some_positives(24, 60), rho=2, denoisers=3)
    seen = {type(one.message) for one in finished.transcript.seen_by(Role.SERVER)}
    assert not seen & {denoised.Noise, denoised.LayerMasks, fedncf.LayerSteps, fedncf.ItemSteps}
    denoiser_sees = {type(one.message) for one in finished.transcript.seen_by(Role.DENOISER)}
    assert denoiser_sees == {
        denoised.Noise, denoised.LayerMasks, denoised.DenoiserModel, denoised.DenoisingSums, denoised.SendMaskSums,
        denoised.SummedMasks,
    }  # fmt: skip


def test_virtual_clients_have_as_many_samples_of_each_kind_and_train_as_the_real_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 600 items there is room for all. Each virtual client has items of its own, a fifth of them positives."""
    trained, train_clients = [], clients.train_clients

    def spy(user_factors: Any, item_factors: Any, layers: Any, listing: Any, *rest: Any) -> Any:
        trained.append((user_factors.copy(), listing))
        return train_clients(user_factors, item_factors, layers, listing, *rest)

    monkeypatch.setattr(clients, "train_clients", spy)
    fit(some_positives(8, 600), rho=3, denoisers=1, num_rounds=1)
    (start, real), *virtual = trained[:4]
    assert len(virtual) == 3
    lists = []
    for own_start, listing in virtual:
        np.testing.assert_array_equal(own_start, start)
        np.testing.assert_array_equal(listing.starts, real.starts)
        for first, last in zip(real.starts[:-1], real.starts[1:], strict=True):
            kinds = [(one.rated_place[first:last] >= 0).sum() for one in (real, listing)]
            assert kinds[0] == kinds[1] > 0
    for first, last in zip(real.starts[:-1], real.starts[1:], strict=True):
        lists = [one.items[first:last] for one in (real, *(listing for _, listing in virtual))]
        assert len(np.unique(np.concatenate(lists))) == 4 * (last - first)


def test_virtual_positives_score_like_real_ones() -> None:
    """By hand: two real positives with scores 5 and 1. In a group of 10 items with 9, 8, ..., 0 that is 5 and 1;
    in one with 4, 3, 2, 2, 2 there is no 5 and no 1: 4 and the last.
    """
    starts, scores = np.array([0, 10, 15]), np.array([*range(10), 2, 4, 2, 3, 2], np.float32)
    order = np.lexsort((-scores, np.repeat([0, 1], [10, 5])))
    is_positive = np.zeros(15, bool)
    shares = np.array([0.2, 0.4])
    real_starts, real_scores = np.array([0, 2, 4]), np.array([5, 1, 5, 1], np.float32)
    clients._match(starts, scores, order, real_starts, real_scores, 1, shares, is_positive)
    assert np.flatnonzero(is_positive).tolist() == [1, 5, 11, 14]


def test_masked_layers_are_the_layers_behind_masks() -> None:
    finished = fit(some_positives(24, 60), rho=1, denoisers=2, num_rounds=1)
    plain = fit(some_positives(24, 60), num_rounds=1)
    (masked,), (sent,) = finished.sent(denoised.MaskedLayers), plain.sent(fedncf.LayerSteps)
    words = masked.message.words.values.reshape(22, -1)
    table = sent.message.gradients.values.reshape(24, -1)[masked.numbers]
    assert (words != fixed_point(masked.numbers, table)).all()
    (masks,) = finished.sent(denoised.LayerMasks)
    np.testing.assert_array_equal(
        words - masks.message.words.values.reshape(22, -1), fixed_point(masked.numbers, table)
    )


def test_noise_without_denoisers_and_denoisers_without_clients_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"rho=3 adds noise that only denoisers take out .* add denoisers=1"):
        fedncf.SYSTEM.configure({"rho": 3})
    with pytest.raises(HushrecError, match=r"7 denoisers for 12 clients .* use denoisers=6 or less"):
        fit(some_positives(24, 60), denoisers=7, participation=0.5)


def test_denoisers_are_asked_after_their_clients() -> None:
    finished = fit(some_positives(24, 60), rho=1, denoisers=3, num_rounds=1)
    for kind in (denoised.DenoiserModel, denoised.SendMaskSums):
        with pytest.raises(HushrecError, match=r"a denoiser got no (noise|masks) and would show its own"):
            finished.ask_again(finished.sent(kind)[0])

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy import denoising
from hushrec.privacy.denoising import (
    AssignedSum,
    Assignment,
    DenoiserTotal,
    NoiseSums,
    assign,
    check_denoisers,
    draw_denoisers,
)
from hushrec.privacy.exact_sum import ExactSum
from hushrec.protocol import Ragged, draw_participants

NUM_ITEMS, NUM_FACTORS = 6, 3


def of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


# --- Who denoises for whom ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_denoisers", "num_clients"), [(0, 1), (0, 0), (1, 2), (10, 20), (10, 21)])
def test_enough_clients_to_hide_behind(num_denoisers: int, num_clients: int) -> None:
    check_denoisers(num_denoisers, num_clients)


def test_too_many_denoisers_are_refused_with_the_reason() -> None:
    with pytest.raises(HushrecError, match=r"12 denoisers for 21 clients .* alone.*denoisers=10 or less"):
        check_denoisers(12, 21)
    with pytest.raises(HushrecError, match=r"use denoisers=0$"):
        check_denoisers(1, 1)


def test_denoisers_are_drawn_uniformly() -> None:
    """3 of 10 clients for 3000 seeds: chi-square of how often each is drawn, false-alarm rate 1e-6. The counts
    of draws without replacement vary by (1 - 3/10) and have 9 degrees of freedom.
    """
    counts = Counter()
    for seed in range(3000):
        drawn = draw_denoisers(3, 10, Draws(seed))
        assert drawn.dtype == np.int32
        assert (np.diff(drawn) > 0).all()
        counts.update(drawn.tolist())
    observed = np.array([counts[client] for client in range(10)])
    statistic = ((observed - 900) ** 2 / (900 * 0.7)).sum() * 9 / 10
    assert stats.chi2.sf(statistic, 9) > 1e-6


def test_everyone_takes_part_by_default() -> None:
    assert draw_participants(5, 1.0, 1, Draws(0), of(2)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("denoisers", [of(), of(4), of(0, 4, 17)])
def test_participants_include_a_denoiser(denoisers: np.ndarray) -> None:
    """One of 20 is to take part; with denoisers it is two, and most rounds have to be mended."""
    seen = set()
    for round_number in range(1, 200):
        chosen = draw_participants(20, 0.05, round_number, Draws(1), denoisers)
        assert len(chosen) == (2 if len(denoisers) else 1)
        assert not len(denoisers) or np.isin(chosen, denoisers).any()
        seen.update(chosen.tolist())
    assert seen == set(range(20))


@given(
    num_clients=st.integers(2, 40),
    participation=st.floats(0.01, 1.0),
    eta=st.integers(0, 20),
    round_number=st.integers(1, 500),
    seed=st.integers(0, 1000),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_participants_and_assignment(
    num_clients: int, participation: float, eta: int, round_number: int, seed: int
) -> None:
    """Participants are a set of the due size; they are parted into denoisers and clients; clients are dealt evenly
    and every active denoiser has one.
    """
    eta, draws = min(eta, num_clients // 2), Draws(seed)
    denoisers = draw_denoisers(eta, num_clients, draws)
    participants = draw_participants(num_clients, participation, round_number, draws, denoisers)
    assert len(participants) == max(2 if eta else 1, round(participation * num_clients))
    assert (np.diff(participants) > 0).all()
    assert not eta or np.isin(participants, denoisers).any()
    dealt = assign(participants, denoisers, round_number, draws)
    if not eta:
        assert dealt.ordinary.tolist() == participants.tolist()
        assert set(dealt.denoiser_of.tolist()) == {-1}
        assert not len(dealt.denoisers)
        return
    assert sorted([*dealt.ordinary, *dealt.denoisers]) == participants.tolist()
    assert np.isin(dealt.denoisers, denoisers).all()
    loads = np.unique(dealt.denoiser_of, return_counts=True)[1]
    assert loads.max() - loads.min() <= 1
    assert len(dealt.denoisers) == min(np.isin(denoisers, participants).sum(), len(participants) // 2)


def test_assignment_is_dealt_anew_in_each_round() -> None:
    """20 rounds for 30 clients and 3 denoisers never repeat; each client meets every denoiser, missing some one
    with chance at most 90 (2/3)^20 = 3% over seeds; the seed is fixed.
    """
    everyone, denoisers = np.arange(33, dtype=np.int32), of(1, 5, 9)
    rounds = [assign(everyone, denoisers, number, Draws(4)).denoiser_of for number in range(1, 21)]
    assert len({tuple(dealt) for dealt in rounds}) == 20
    assert all(set(column.tolist()) == {1, 5, 9} for column in np.array(rounds).T)
    np.testing.assert_array_equal(assign(everyone, denoisers, 7, Draws(4)).denoiser_of, rounds[6])


@given(num_clients=st.integers(2, 40), eta=st.integers(1, 20), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_assignment_at_random(num_clients: int, eta: int, seed: int) -> None:
    """Everyone takes part, and a denoiser whom nobody drew as an ordinary client."""
    draws = Draws(seed)
    denoisers, everyone = (
        draw_denoisers(min(eta, num_clients // 2), num_clients, draws),
        np.arange(num_clients, dtype=np.int32),
    )
    drawn = assign(everyone, denoisers, 1, draws, "random")
    assert sorted([*drawn.ordinary, *drawn.denoisers]) == everyone.tolist()
    assert (np.diff(drawn.ordinary) > 0).all()
    assert np.isin(drawn.denoisers, denoisers).all()


def test_at_random_is_uneven_and_uniform() -> None:
    """100 rounds of 30 clients and 3 denoisers: 1000 draws each, +-105 is 4 deviations (two in ten thousand over
    seeds); the seed is fixed. Evenly dealt, each has 10 in every round.
    """
    everyone, denoisers = np.arange(33, dtype=np.int32), of(1, 5, 9)
    rounds = [assign(everyone, denoisers, number, Draws(4), "random") for number in range(1, 101)]
    loads = np.array([[np.sum(one.denoiser_of == denoiser) for denoiser in (1, 5, 9)] for one in rounds])
    assert np.abs(loads.sum(axis=0) - 1000).max() <= 105
    assert len(np.unique(loads)) > 5


def test_who_is_left_when_some_are_lost() -> None:
    """Denoiser 1 is lost with its clients 0 and 3; client 4 is lost; its denoiser 2 keeps client 5."""
    left = Assignment(of(0, 3, 4, 5), of(1, 1, 2, 2)).without(of(1, 4))
    assert (left.ordinary.tolist(), left.denoiser_of.tolist()) == ([5], [2])
    assert left.denoisers.tolist() == [2]
    assert left.without(of(5)).denoisers.tolist() == []


# --- What they add up --------------------------------------------------------------------------------------


@dataclass
class Rows:
    items: Ragged
    gradients: Ragged


Held = list[list[tuple[int, list[float]]]]


def message(held: Held) -> Rows:
    starts = np.concatenate([[0], np.cumsum([len(one) for one in held])]).astype(np.int64)
    items = np.array([item for one in held for item, _ in one], np.int32)
    rows = np.array([row for one in held for _, row in one], np.float32).reshape(-1, NUM_FACTORS)
    return Rows(Ragged(starts, items), Ragged(starts, rows))


def to_fixed(number: float) -> int:
    return round(Fraction(number) * 2**FRACTION_BITS)


def python_release(noise: list[tuple[int, Held]], denoiser: int, own: Held) -> dict[int, tuple[list[int], int]]:
    """Eq. 9 with Python integers: item -> (sum, count)."""
    sums: dict[int, tuple[list[int], int]] = {}
    signed = [(1, one) for addressee, held in noise if addressee == denoiser for one in held]
    for sign, one in [*signed, *[(-1, one) for one in own]]:
        for item, row in one:
            total, count = sums.get(item, ([0] * NUM_FACTORS, 0))
            new = [old + sign * to_fixed(number) for old, number in zip(total, row, strict=True)]
            sums[item] = (new, count + sign)
    return sums


def released(inbox: NoiseSums, denoisers: np.ndarray, own: Held) -> list[dict[int, tuple[list[int], int]]]:
    items, sums, counts = inbox.release(denoisers, message(own))
    np.testing.assert_array_equal(items.starts, sums.starts)
    np.testing.assert_array_equal(items.starts, counts.starts)
    result = []
    for first, last in zip(items.starts, items.starts[1:], strict=False):
        assert (np.diff(items.values[first:last]) > 0).all()
        columns = (items.values[first:last], sums.values[first:last], counts.values[first:last])
        result.append({int(i): (s.tolist(), int(c)) for i, s, c in zip(*columns, strict=True)})
    return result


rows = st.lists(st.floats(-1000, 1000, width=32), min_size=NUM_FACTORS, max_size=NUM_FACTORS)
one_client = st.dictionaries(st.integers(0, NUM_ITEMS - 1), rows, max_size=3).map(
    lambda held: sorted(held.items())
)


@given(
    mail=st.lists(st.tuples(st.sampled_from([2, 3, 90]), one_client), min_size=1, max_size=8),
    own=st.lists(one_client, min_size=3, max_size=3),
    fork_of=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    num_denoisers=st.sampled_from([1, 3]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_release_is_python_sums_for_any_split(
    mail: list[tuple[int, list[tuple[int, list[float]]]]], own: Held, fork_of: list[int], num_denoisers: int
) -> None:
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, num_denoisers)  # a hint of its size only
    forks = [inbox, inbox.fork(), inbox.fork()]
    for (addressee, held), fork in zip(mail, fork_of, strict=False):
        forks[fork].add(of(addressee), message([held]))
    for fork in forks[1:]:
        inbox.merge(fork)
    with_mail = np.unique(of(*(addressee for addressee, _ in mail)))
    assert inbox.has_mail(of(2, 3, 90)).tolist() == np.isin([2, 3, 90], with_mail).tolist()
    noise = [(addressee, [held]) for addressee, held in mail]
    expected = [python_release(noise, int(one), [own[k]]) for k, one in enumerate(with_mail)]
    assert released(inbox, with_mail, own[: len(with_mail)]) == expected


def test_one_batch_equals_many() -> None:
    held: Held = [[(0, [1.0, 2.0, 3.0])], [], [(0, [0.5] * 3), (5, [-1.0] * 3)], [(2, [4.0] * 3)]]
    together, apart = NoiseSums(NUM_ITEMS, NUM_FACTORS, 2), NoiseSums(NUM_ITEMS, NUM_FACTORS, 2)
    together.add(of(7, 1, 1, 7), message(held))
    for addressee, one in zip((7, 1, 1, 7), held, strict=True):
        apart.add(of(addressee), message([one]))
    own: Held = [[(3, [1.0] * 3)], [(0, [1.0] * 3)]]
    assert released(together, of(1, 7), own) == released(apart, of(1, 7), own)


def test_release_lists_own_items_even_where_they_cancel() -> None:
    """The noise on item 1 is the denoiser's own gradient: the sum is 0 and the count 0, listed all the same, since
    leaving it out would tell the server that they are equal.
    """
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 1)
    inbox.add(of(0), message([[(1, [0.25, 0.5, 1.0])]]))
    assert released(inbox, of(0), [[(1, [0.25, 0.5, 1.0])]]) == [{1: ([0, 0, 0], 0)}]


def test_large_tables_are_shared_and_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 2)
    assert inbox.fork() is not inbox
    monkeypatch.setattr(denoising, "_OWN_TABLE_BYTES", 1)
    fork = inbox.fork()
    assert fork is inbox
    held: Held = [[(0, [1.5, 2.0, 3.0])]]
    inbox.add(of(4), message(held))
    fork.add(of(4), message(held))
    inbox.merge(fork)
    assert released(inbox, of(4), [[]]) == [{0: ([to_fixed(number) for number in (3.0, 4.0, 6.0)], 2)}]


def uploads_for(denoisers: np.ndarray, num_each: int, num_items: int = NUM_ITEMS) -> AssignedSum:
    """So many clients of each denoiser have come, and all list all items."""
    ordinary = np.arange(100, 100 + num_each * len(denoisers), dtype=np.int32)
    assignment = Assignment(ordinary, np.repeat(denoisers, num_each))
    total = ExactSum.zeros((num_items, NUM_FACTORS), num_summands=2 * (len(ordinary) + len(denoisers)))
    uploads = AssignedSum(total, assignment)
    uploads.add(ordinary, message([[(item, [1.0] * 3) for item in range(num_items)]] * len(ordinary)))
    return uploads


@dataclass
class Sums:
    items: Ragged
    sums: Ragged
    counts: Ragged


def test_the_server_adds_up_all_denoisers() -> None:
    """Two denoisers list item 1, one lists item 0; forks are merged."""
    starts = np.array([0, 2, 3])
    sums = Sums(
        Ragged(starts, of(0, 1, 1)),
        Ragged(starts, np.array([[5, 6, 7], [-1, 2**53, 0], [10, -(2**53), 3]])),
        Ragged(starts, of(1, -1, 4)),
    )
    noise = DenoiserTotal.of(uploads_for(of(8, 9), 4, num_items=3))
    for fork in (noise.fork(), noise.fork()):
        fork.add(of(8, 9), sums)
        noise.merge(fork)
    assert noise.total.totals.tolist() == [[10, 12, 14], [18, 0, 6], [0, 0, 0]]
    assert noise.total.counts.tolist() == [2, 6, 0]


# --- What is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2048.0, -2048.0, 1e9])
def test_a_denoisers_own_gradients_are_refused_like_others(bad: float) -> None:
    """Denoiser 8's own are in order, 9's are not."""
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 2)
    inbox.add(of(8, 9), message([[(1, [1.0, 1.0, 1.0])]] * 2))
    own: Held = [[(1, [1.0] * 3), (2, [1.0] * 3)], [(0, [1.0] * 3), (1, [0.0, bad, 0.0])]]
    with pytest.raises(DivergedError, match="update of client 9 is not finite or not within ±2048"):
        inbox.release(of(8, 9), message(own))


def test_a_denoisers_own_gradients_up_to_the_limit_are_released() -> None:
    """2048 - 2^-13 is the largest float32 below 2048."""
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 1)
    inbox.add(of(8), message([[(1, [1.0, 1.0, 1.0])]]))
    largest = 2048 - 2.0**-13
    expected = [to_fixed(number) for number in (1 - largest, 1 + largest, 1.0)]
    assert released(inbox, of(8), [[(1, [largest, -largest, 0.0])]]) == [{1: (expected, 0)}]


OUTSIDE = [NUM_ITEMS, -1, -NUM_ITEMS, 2**31 - 1, -(2**31)]
MISSHAPEN = [(2, 3), (1, 3), (4, 3), (0, 3), (3, 2), (3, 4), (3, 0), (3,), (3, 3, 1)]
"""Not 3 rows of 3 factors."""


def misshapen(shape: tuple[int, ...]) -> Rows:
    """Items 0, 1 and 2 of one client, with gradients of another shape than theirs."""
    starts = np.array([0, 3])
    return Rows(Ragged(starts, of(0, 1, 2)), Ragged(starts, np.ones(shape, np.float32)))


def inbox_with_mail() -> NoiseSums:
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 1)
    inbox.add(of(8), message([[(1, [1.0, 1.0, 1.0])]]))
    return inbox


@pytest.mark.parametrize("item", OUTSIDE)
def test_noise_for_items_outside_the_catalogue_is_refused(item: int) -> None:
    """In the tables of two denoisers, item 6 of the first would be item 0 of the second."""
    inbox = NoiseSums(NUM_ITEMS, NUM_FACTORS, 2)
    inbox.add(of(8, 9), message([[(1, [1.0, 1.0, 1.0])]] * 2))
    with pytest.raises(HushrecError, match="not of the catalogue"):
        inbox.add(of(8), message([[(0, [1.0] * 3), (item, [1.0] * 3)]]))
    assert inbox.counts[1].tolist() == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2048.0, -1e9])
def test_noise_that_cannot_be_summed_exactly_is_refused(number: float) -> None:
    inbox = inbox_with_mail()
    with pytest.raises(HushrecError, match="noise is not finite, not within"):
        inbox.add(of(8), message([[(0, [1.0] * 3), (2, [0.0, number, 0.0])]]))


@pytest.mark.parametrize("shape", MISSHAPEN)
def test_noise_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    inbox = inbox_with_mail()
    with pytest.raises(HushrecError, match=r"gradients of shape .* came, not \(3, 3\)"):
        inbox.add(of(8), misshapen(shape))
    assert released(inbox, of(8), [[]]) == [{1: ([to_fixed(1.0)] * 3, 1)}]


@pytest.mark.parametrize("item", OUTSIDE)
def test_own_gradients_for_items_outside_the_catalogue_are_refused(item: int) -> None:
    inbox = inbox_with_mail()
    with pytest.raises(HushrecError, match=r"^client 8 lists an item that is not in the catalogue") as refused:
        inbox.release(of(8), message([[(0, [1.0] * 3), (item, [1.0] * 3)]]))
    assert not isinstance(refused.value, DivergedError)
    assert inbox.counts.tolist() == [[0, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("shape", MISSHAPEN)
def test_own_gradients_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    inbox = inbox_with_mail()
    with pytest.raises(HushrecError, match=r"gradients of shape .* came, not \(3, 3\)"):
        inbox.release(of(8), misshapen(shape))
    assert released(inbox, of(8), [[]]) == [{1: ([to_fixed(1.0)] * 3, 1)}]


def sums_of(items: np.ndarray, shape: tuple[int, ...], num_counts: int) -> Sums:
    starts = np.array([0, len(items)])
    sums, counts = np.ones(shape, np.int64), np.ones(num_counts, np.int32)
    return Sums(Ragged(starts, items), Ragged(starts, sums), Ragged(starts, counts))


@pytest.mark.parametrize(
    "sums",
    [
        *(sums_of(of(*sorted((0, item, 1))), (3, 3), 3) for item in OUTSIDE),
        *(sums_of(of(0, 1, 2), shape, 3) for shape in MISSHAPEN),
        *(sums_of(of(0, 1, 2), (3, 3), num_counts) for num_counts in (0, 1, 2, 4)),
        sums_of(of(), (0, 4), 0),
        sums_of(of(), (1, 3), 0),
    ],
)
def test_sums_that_do_not_fit_the_catalogue_are_refused(sums: Sums) -> None:
    """Items outside it, other shapes, other numbers of counts; nothing of them is added."""
    noise = DenoiserTotal.of(uploads_for(of(8), 1))
    with pytest.raises(HushrecError, match=r"^the sums of denoiser 8 do not fit the catalogue"):
        noise.add(of(8), sums)
    assert not noise.total.totals.any()
    assert not noise.total.counts.any()


def test_sums_without_rows_add_nothing() -> None:
    noise = DenoiserTotal.of(uploads_for(of(8), 1))
    noise.add(of(8), sums_of(of(), (0, 3), 0))
    assert not noise.total.counts.any()


# --- What a denoiser cannot have got -----------------------------------------------------------------------

LARGEST = to_fixed(2048 - 2.0**-13)


def one_item(item: int, number: int, count: int) -> Sums:
    starts = np.array([0, 1])
    return Sums(Ragged(starts, of(item)), Ragged(starts, np.array([[0, number, 0]])), Ragged(starts, of(count)))


def two_denoisers() -> AssignedSum:
    """Item 1 is listed by clients 1 and 2 of denoiser 8, and by client 3 of denoiser 9, who has client 4, too."""
    assignment = Assignment(of(1, 2, 3, 4), of(8, 8, 9, 9))
    uploads = AssignedSum(ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 12), assignment)
    halves = uploads.fork(), uploads.fork()
    halves[0].add(of(1, 3), message([[(1, [1.0] * 3)], [(1, [1.0] * 3)]]))
    halves[1].add(of(2, 4), message([[(1, [1.0] * 3)], [(2, [1.0] * 3)]]))
    for half in halves:
        uploads.merge(half)
    return uploads


@pytest.mark.parametrize(
    ("denoiser", "number", "count"),
    [(8, 3 * LARGEST, 2), (8, -3 * LARGEST, -1), (9, 2 * LARGEST, 1), (9, 0, 0)],
)
def test_what_a_denoisers_clients_can_have_sent_is_added(denoiser: int, number: int, count: int) -> None:
    """Its clients' rows and its own, each as large as allowed: three rows of denoiser 8, two of denoiser 9."""
    noise = DenoiserTotal.of(two_denoisers())
    noise.add(of(denoiser), one_item(1, number, count))
    assert noise.total.totals[1].tolist() == [0, number, 0]
    assert noise.total.counts[1] == count


@pytest.mark.parametrize(
    ("denoiser", "item", "number", "count"),
    [
        (8, 1, 0, 3), (8, 1, 0, -2), (9, 1, 0, 2), (8, 1, 3 * LARGEST + 1, 0), (8, 1, -3 * LARGEST - 1, 0),
        (9, 1, 2 * LARGEST + 1, 0), (8, 2, 0, 1), (8, 1, 2**63 - 1, 0), (8, 1, -(2**63), 0), (9, 1, 0, -(2**31)),
    ],
)  # fmt: skip
def test_a_denoiser_that_takes_out_what_did_not_come_in_is_named(
    denoiser: int, item: int, number: int, count: int
) -> None:
    noise = DenoiserTotal.of(two_denoisers())
    with pytest.raises(HushrecError, match=rf"^denoiser {denoiser} takes out more than came in, or counts"):
        noise.add(of(denoiser), one_item(item, number, count))
    assert not noise.total.totals.any()


def test_where_tables_would_be_large_all_clients_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three list item 1, and no denoiser has more than two clients."""
    monkeypatch.setattr(denoising, "_OWN_TABLE_BYTES", 4)
    noise = DenoiserTotal.of(two_denoisers())
    noise.add(of(9), one_item(1, 0, 2))
    with pytest.raises(HushrecError, match="denoiser 9 takes out"):
        noise.add(of(9), one_item(1, 0, 3))


def test_counts_that_do_not_add_up_to_the_virtual_items_are_refused() -> None:
    """Two lists of 4, with rho 1, have 4 virtual items. Less the denoiser's own, 6 at the most: -2 to 4."""
    uploads = AssignedSum(
        ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 8),
        Assignment(of(1, 2), of(8, 8)),
        lambda lengths: (lengths // 2,) * 2,
    )
    uploads.add(of(1, 2), message([[(item, [1.0] * 3) for item in range(4)]] * 2))
    starts = np.array([0, 4])

    def counts(*numbers: int) -> Sums:
        return Sums(
            Ragged(starts, of(0, 1, 2, 3)),
            Ragged(starts, np.zeros((4, 3), np.int64)),
            Ragged(starts, of(*numbers)),
        )

    DenoiserTotal.of(uploads).add(of(8), counts(1, 1, 1, 1))
    DenoiserTotal.of(uploads).add(of(8), counts(-1, -1, 0, 0))
    for wrong in (counts(2, 1, 1, 1), counts(-1, -1, -1, 0)):
        with pytest.raises(
            HushrecError, match=r"^denoiser 8 counts -?[0-9]+ virtual items, and its clients list -2 to 4"
        ):
            DenoiserTotal.of(uploads).add(of(8), wrong)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_uploads_and_the_largest_noise_do_not_wrap(sign: int) -> None:
    """5,000 clients and 2 denoisers send as much as is accepted, noise of the other sign."""
    num_clients, denoisers = 5000, of(8, 9)
    ordinary = np.arange(100, 100 + num_clients, dtype=np.int32)
    total = ExactSum.zeros((1, NUM_FACTORS), num_summands=2 * (num_clients + 2))
    uploads = AssignedSum(total, Assignment(ordinary, np.repeat(denoisers, num_clients // 2)))
    uploads.add(ordinary, message([[(0, [sign * total.limit] * 3)]] * num_clients))
    noise, each = DenoiserTotal.of(uploads), (num_clients // 2 + 1) * to_fixed(total.limit)
    starts = np.array([0, 1, 2])
    noise.add(
        denoisers,
        Sums(Ragged(starts, of(0, 0)), Ragged(starts, np.full((2, 3), -sign * each)), Ragged(starts, of(0, 0))),
    )
    total.subtract(noise.total)
    assert total.totals.tolist() == [[sign * (num_clients * to_fixed(total.limit) + 2 * each)] * 3]


@pytest.mark.parametrize("batch", [1, 64])
def test_noise_that_could_leave_the_range_is_refused_before_it_does(batch: int) -> None:
    """2^23 holds 4096 rows below 2048 and, with room for the denoiser's own, 4094 are taken: none has wrapped."""
    inbox, largest = NoiseSums(2, NUM_FACTORS, 1), 2048 - 2.0**-13
    letters, addressees = message([[(1, [largest] * 3)]] * batch), np.full(batch, 8, np.int32)
    num_taken = 4094 // batch * batch
    for _ in range(num_taken // batch):
        inbox.add(addressees, letters)
    with pytest.raises(DivergedError, match="the noise that came is too large to be added up"):
        inbox.add(addressees, letters)
    assert inbox.totals[1].max() == (num_taken + batch) * to_fixed(largest) < 2**63


def test_forks_that_together_could_leave_the_range_are_refused() -> None:
    inbox, letters = NoiseSums(2, NUM_FACTORS, 1), message([[(1, [2000.0] * 3)]] * 2500)
    forks = inbox.fork(), inbox.fork()
    for fork in forks:
        fork.add(np.full(2500, 8, np.int32), letters)
    inbox.merge(forks[0])
    with pytest.raises(DivergedError, match="too large to be added up"):
        inbox.merge(forks[1])


def test_noise_with_an_item_twice_is_refused() -> None:
    with pytest.raises(HushrecError, match="not of the catalogue or has an item twice"):
        NoiseSums(NUM_ITEMS, NUM_FACTORS, 1).add(of(8), message([[(1, [1.0] * 3), (1, [1.0] * 3)]]))

"""FedCORE's training: a step worked by hand, copies that stay in step, and partners that are lost."""

from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models import neucf
from hushrec.protocol import Answer, Ask, Transcript, kept_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.rounds import drive_round
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.set_intersection import keyed_tokens
from hushrec.systems.fedcore.system import (
    Align,
    Aligned,
    Identities,
    ItemGradients,
    Settle,
    Settled,
    Stepped,
    TakeStep,
    UserGradients,
)
from systems.partner_runs import assert_in_step, ids_of, pairwise_common, partners, watched
from systems.runs import Finished, Ratings, run, some_partners

FEDCORE = SYSTEMS["fedcore"]
PRIVATIZERS = ["none", "average", "dp", "dp+average"]


def fedcore(ratings: Ratings, **options: Any) -> Finished:
    return run("fedcore", ratings, **{"inference": "none", "batch_size": 16, **options})


def is_aligned(ask: Ask) -> bool:
    return isinstance(ask.request, Align) and int(ask.request.stage) == len(ask.to)


# --- One step by hand --------------------------------------------------------------------------------------


def one_step(ratings: Ratings, users: dict[str, float], items: dict[str, float], **options: Any) -> dict[str, Any]:
    """The vectors after one step from these, by partner and id; with a learning rate of 1/4."""

    def start(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if is_aligned(ask):
            for partner in private.partners:
                own_users, own_items = ids_of(private, partner)
                partner.user_factors[:, 0] = [users[name] for name in own_users]
                partner.item_factors[:, 0] = [items[name] for name in own_items]

    finished = watched(ratings, start, num_factors=1, num_rounds=1, learning_rate=0.25, **options)
    found = {}
    for partner, name in zip(finished.private.partners, "ab", strict=True):
        for names, vectors in zip(
            ids_of(finished.private, partner), (partner.user_factors, partner.item_factors), strict=True
        ):
            found |= {f"{name} {own}": float(vector) for own, vector in zip(names, vectors[:, 0], strict=True)}
    return found


def test_hand_worked_step() -> None:
    """x is common, y is only a's; U_x = 1, U_y = 2, V_p = 2 at a, V_q = 1 at b; the batches are all ratings.

    a, 2/B = 1: r(x, p) = 4, e = 2 - 4 = -2, rows e V = -4 and e U = -2; r(y, p) = 1, e = 3, rows 6 and 6.
    b, 2/B = 2: r(x, q) = 2, e = 1 - 2 = -1, rows 2 e V = -2 and 2 e U = -2.
    x moves by the mean of -4 and -2 on both sides: 1 + 3/4. y by 6: 2 - 6/4. p by -2 + 6: 2 - 4/4. q: 1 + 2/4.
    """
    ratings = partners(a={"x": {"p": 4.0}, "y": {"p": 1.0}}, b={"x": {"q": 2.0}})
    found = one_step(ratings, {"x": 1, "y": 2}, {"p": 2, "q": 1})
    assert found == {"a x": 1.75, "a y": 0.5, "a p": 1.0, "b x": 1.75, "b q": 1.5}


@pytest.mark.parametrize(("privatizer", "user", "item"), [("none", 1.0, 1.25), ("average", 1.0, 1.5)])
def test_hand_worked_step_with_an_aligned_item(privatizer: str, user: float, item: float) -> None:
    """p is at both, V_p = 2. a as above: rows of x -4, of y 6, of p -2 and 6. b, 2/B = 2: r(x, p) = 1, e = 1,
    rows 4 and 2. x moves by the mean of -4 and 4: not at all. p by the mean of -2 + 6 and 2: 2 - 3/4; with
    averages by that of (-2 + 6) / 2 and 2: 2 - 2/4. What is only a's own moves by its own sum.
    """
    ratings = partners(a={"x": {"p": 4.0}, "y": {"p": 1.0}}, b={"x": {"p": 1.0}})
    found = one_step(ratings, {"x": 1, "y": 2}, {"p": 2}, unaligned=0.0, privatizer=privatizer)
    assert found == {"a x": user, "a y": 0.5, "a p": item, "b x": user, "b p": item}


@pytest.mark.parametrize("seed", range(4))
def test_a_common_user_in_one_batch_only_moves_by_that_ones_gradient_on_both_sides(seed: int) -> None:
    """Batches of one rating: in the first step both partners take the same of x and z, or one takes either. With
    U = 1 and V = 2, rows 2 e V are -8 of x and 4 of z at a, 0 of x and -12 of z at b.
    """
    ratings = partners(a={"x": {"p": 4.0}, "z": {"p": 1.0}}, b={"x": {"q": 2.0}, "z": {"q": 5.0}})
    rows = ({"x": -8.0, "z": 4.0}, {"x": 0.0, "z": -12.0})
    vectors: list[dict[str, float]] = []
    batches: list[list[str]] = []

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if is_aligned(ask):
            for partner in private.partners:
                partner.user_factors[:], partner.item_factors[:] = 1.0, 2.0
        elif isinstance(ask.request, TakeStep):
            assert_in_step(private, [0, 1])
            names = ids_of(private, private.partners[0])[0]
            vectors.append(dict(zip(names.tolist(), private.partners[1].user_factors[:, 0].tolist(), strict=True)))
            batches.append([str(names[p.users[p.pending.places[0]]]) for p in private.partners])

    watched(ratings, look, num_factors=1, num_rounds=1, learning_rate=0.25, batch_size=1, seed=seed)
    sent: dict[str, list[float]] = {"x": [], "z": []}
    for of_partner, name in zip(rows, batches[0], strict=True):
        sent[name].append(of_partner[name])
    assert vectors[0] == {"x": 1.0, "z": 1.0}
    assert vectors[1] == {name: 1.0 - 0.25 * float(np.mean(own)) if own else 1.0 for name, own in sent.items()}


def test_a_step_of_neucf_moves_layers_by_the_mean_of_the_partners_gradients() -> None:
    """Against gradients of the same batches, from the same start, and a plain mean."""
    starts: list[list[np.ndarray]] = []

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if is_aligned(ask):
            starts.extend(
                [p.user_factors.copy(), p.item_factors.copy(), p.layers.copy()] for p in private.partners
            )

    ratings = some_partners(2)
    finished = watched(ratings, look, model="neucf", num_factors=4, num_rounds=1, batch_size=10**6)
    gradients = []
    for partner, (users, items, layers) in zip(finished.private.partners, starts, strict=True):
        rows = np.empty((2, len(partner.ratings), 8), np.float32)
        out = neucf.Gradients(rows[0], rows[1], np.empty_like(layers))
        neucf.batch_gradients(
            users, items, layers, partner.users, partner.items, partner.ratings, "quadratic", out
        )
        gradients.append(out.layers.astype(np.float64))
    expected = starts[0][2] - 0.15 * np.mean(gradients, axis=0)
    for partner in finished.private.partners:
        np.testing.assert_allclose(partner.layers, expected, rtol=1e-5, atol=1e-7)
    assert np.abs(expected - starts[0][2]).max() > 1e-3


# --- In step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("privatizer", PRIVATIZERS)
@pytest.mark.parametrize("num_partners", [2, 3])
@pytest.mark.parametrize(
    "values",
    [{"model": "pmf", "regularization": 0.01}, {"model": "neucf", "unaligned": 0.0, "learning_rate": 0.01}],
)
def test_after_every_step_all_copies_are_equal_to_the_last_bit(
    privatizer: str, num_partners: int, values: dict[str, Any]
) -> None:
    sizes, seen = [], []

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if not isinstance(ask.request, Align):
            sizes.append(assert_in_step(private, list(range(num_partners))))
            seen.append(private.user_factors.tobytes())

    ratings = some_partners(num_partners)
    watched(ratings, look, privatizer=privatizer, num_rounds=2, batch_size=12, **values)
    assert len(sizes) > 20
    assert min(sizes) == max(sizes) >= 19 * 5, "the common users' vectors, at least"
    assert len(set(seen)) > len(seen) - 3, "the vectors move in each step"


def test_pairwise_common_users_are_in_step_too_and_rows_go_only_to_who_has_the_user() -> None:
    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if not isinstance(ask.request, Align):
            assert_in_step(private, [0, 1, 2])

    finished = watched(pairwise_common(), look, num_rounds=2, batch_size=8)
    known = [set(partner.common_users[partner.common_users >= 0]) for partner in finished.private.partners]
    assert [len(own) for own in known] == [9, 9, 9]
    assert len(set.union(*known)) == 12
    sent = {(one, other): set[int]() for one in range(3) for other in range(3) if one != other}
    for mail in finished.sent(UserGradients):
        for place, (number, to) in enumerate(zip(mail.numbers, mail.addressees, strict=True)):
            users = set(mail.message.users.part(place, place + 1).values.tolist())
            assert users <= known[number] & known[to]
            sent[int(number), int(to)] |= users
    for (one, other), users in sent.items():
        assert users == known[one] & known[other], "in an epoch all of them have a turn"


# --- Alignment ---------------------------------------------------------------------------------------------


def common_names(finished: Finished) -> list[list[tuple[str, tuple[int, ...]]]]:
    """Of each partner, its common users and items by name, with who else has them."""
    found = []
    for partner in finished.private.partners:
        own = []
        for names, common, holders in zip(
            ids_of(finished.private, partner), (partner.common_users, partner.common_items),
            (partner.holders_of_users, partner.holders_of_items), strict=True,
        ):  # fmt: skip
            who = [tuple(number for number in range(3) if held >> number & 1) for held in holders]
            assert all((number >= 0) == bool(held) for number, held in zip(common, who, strict=True))
            own.append([(str(n), held) for n, held in zip(names, who, strict=True) if held])
        found += own
    return found


@pytest.mark.parametrize("unaligned", [1.0, 0.0])
def test_psi_and_keyed_hash_find_the_same_which_is_the_truth(unaligned: float) -> None:
    runs = [
        fedcore(pairwise_common(), num_rounds=1, alignment=alignment, unaligned=unaligned)
        for alignment in ("psi", "keyed-hash")
    ]
    found = [common_names(finished) for finished in runs]
    assert found[0] == found[1]
    for place, name in enumerate("abc"):
        users, items = found[0][2 * place : 2 * place + 2]
        groups = [group for group in ("ab", "ac", "bc", "abc") if name in group]
        expected = [
            (f"{group}-{number}", tuple("abc".index(other) for other in group if other != name))
            for group in groups
            for number in range(3)
        ]
        assert sorted(users) == sorted(expected)
        assert items == [], "no item has the same id elsewhere"


@pytest.mark.parametrize("unaligned", [0.0, 0.4, 1.0])
def test_a_share_of_the_common_items_is_aligned(unaligned: float) -> None:
    """Of 200 items that both have, 4 sigma around the share; the same at both."""
    ratings = some_partners(2, num_users=60, num_items=400)
    finished = fedcore(ratings, num_rounds=1, unaligned=unaligned, alignment="keyed-hash")
    ids = [ids_of(finished.private, partner)[1] for partner in finished.private.partners]
    both = np.intersect1d(*ids)
    names = [
        set(own[partner.common_items >= 0].tolist())
        for own, partner in zip(ids, finished.private.partners, strict=True)
    ]
    assert names[0] == names[1] <= set(both.tolist())
    assert len(both) == 200
    assert abs(len(names[0]) - 200 * (1 - unaligned)) <= (28 if 0 < unaligned < 1 else 0)
    facts = FEDCORE.result.facts(finished.private, finished.config)
    assert facts.get("aligned items", 0) == len(names[0])


def test_no_id_and_no_unblinded_token_is_sent() -> None:
    """Each partner's list comes back under all secrets; nobody sends what two runs with other secrets share."""
    lists = []
    for seed in (0, 1):
        finished = fedcore(some_partners(3), num_rounds=1, seed=seed)
        lists.append({bytes(token) for mail in finished.sent(Identities) for token in mail.message.tokens.values})
    assert lists[0]
    assert not lists[0] & lists[1]


def test_lists_are_in_an_order_that_says_nothing() -> None:
    """Who passes a list on cannot tell users by their places: not in the order of numbers, and drawn anew."""
    orders = []
    for seed in (0, 1):
        finished = fedcore(some_partners(2), num_rounds=1, alignment="keyed-hash", seed=seed)
        names = ids_of(finished.private, finished.private.partners[0])[0]
        key = Draws(finished.config.prior_seed).key("alignment").tobytes()
        tokens = [bytes(token) for token in keyed_tokens(key, np.char.add("user ", names))]
        sent = next(mail for mail in finished.sent(Identities) if 0 in mail.numbers)
        place = sent.numbers.tolist().index(0)
        listed = sent.message.tokens.part(place, place + 1).values
        orders.append([tokens.index(bytes(token)) for token in listed])
    assert sorted(orders[0]) == sorted(orders[1]) == np.flatnonzero(finished.private.partners[0].is_rated).tolist()
    for order in orders:
        assert np.abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.7, "4 sigma of a random order"
    assert orders[0] != orders[1]


def test_ids_that_nobody_shares_are_an_error_with_a_hint() -> None:
    ratings = partners(a={"x": {"p": 4.0}}, b={"y": {"q": 2.0}})
    told = r"^a partner has no user in common with the others; are user ids written alike\?$"
    with pytest.raises(HushrecError, match=told):
        fedcore(ratings)


def test_vectors_of_visitors_take_no_part() -> None:
    """An account without a rating is not listed; its vector stays zero."""
    finished = fedcore(some_partners(2), num_rounds=1)
    for partner in finished.private.partners:
        assert not partner.user_factors[~partner.is_rated].any()
        assert (partner.common_users[~partner.is_rated] == -1).all()
        assert partner.user_factors[partner.is_rated].any(axis=1).all()
        assert 0 < np.count_nonzero(~partner.is_rated) < len(partner.is_rated)


# --- Batches -----------------------------------------------------------------------------------------------


def test_a_round_goes_through_all_ratings_and_again_where_others_have_more() -> None:
    """a has 12 ratings, b 5; batches of 4: three steps. b's twelve places are its 5, again and again."""
    many = {f"u{number}": {f"p{number % 4}": 3.0, f"q{number % 3}": 2.0} for number in range(6)}
    ratings = partners(a=many, b={f"u{number}": {"z": 4.0} for number in range(5)})
    places: dict[int, list[int]] = {0: [], 1: []}

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if isinstance(ask.request, TakeStep):
            for number, partner in enumerate(private.partners):
                places[number] += partner.pending.places.tolist()

    watched(ratings, look, num_rounds=2, batch_size=4)
    assert [len(rows) for rows in places.values()] == [24, 24]
    for first in (0, 12):
        assert sorted(places[0][first : first + 12]) == list(range(12))
        again = places[1][first : first + 12]
        assert sorted(again[:5]) == sorted(again[5:10]) == list(range(5))
    assert places[0][:12] != places[0][12:], "each round has an order of its own"


# --- Again -------------------------------------------------------------------------------------------------


class BreakOff(Exception):
    """Somebody pulls the plug."""


@pytest.mark.parametrize("model", ["pmf", "neucf"])
@pytest.mark.parametrize("round_number", [1, 2])
@pytest.mark.parametrize("who", [[0, 1, 2], [0], [1, 2]])
def test_a_round_that_begins_again_ends_in_the_same_bits(model: str, round_number: int, who: list[int]) -> None:
    """Broken off in an ask that only some have heard: those are a step further than the others."""
    values = {"model": model, "batch_size": 8, "num_rounds": 2, "inference": "none", "num_factors": 5}
    ratings = some_partners(3)
    expected = run("fedcore", ratings, **values, privatizer="dp", unaligned=0.5)
    config, draws, numbers = (
        FEDCORE.configure({**values, "privatizer": "dp", "unaligned": 0.5}),
        Draws(0),
        [0, 1, 2],
    )
    private = FEDCORE.enrol(np.array(numbers, np.int32), ratings.rows, ratings.num_items, config, draws)
    runtime = InProcess(FEDCORE, config, draws, private, Transcript(), RuntimeOptions(threads=1))
    state = FEDCORE.start(3, ratings.num_items, config, draws)
    for now in (1, 2):
        if now == round_number:
            for stop_at in (1, 3, 7):
                asks = iter(range(100))

                def serve(ask: Ask, stop_at: int = stop_at, asks: Any = asks, now: int = now) -> Answer:
                    if next(asks) == stop_at:
                        runtime.serve(Ask(np.array(who, np.int32), ask.request, ask.replies), now)
                        raise BreakOff
                    return runtime.serve(ask, now)

                runtime.inboxes.clear()
                with pytest.raises(BreakOff):
                    drive_round(FEDCORE, state, now, config, draws, serve)
        state = runtime.run_round(state, now)
    for field, array in kept_arrays(expected.private).items():
        np.testing.assert_array_equal(kept_arrays(private)[field], array, err_msg=field)
    np.testing.assert_array_equal(state.digests, expected.states[-1].digests)


def test_a_first_round_that_begins_again_with_fewer_partners_forgets_the_others() -> None:
    """Three train some steps together; when all begins again one is lost. The others do as if they had not met."""
    ratings, results = some_partners(3), []
    config, draws = FEDCORE.configure({"batch_size": 8, "inference": "none", "num_factors": 5}), Draws(0)
    for num_asks in (0, 8):
        private = FEDCORE.enrol(np.arange(3, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
        start = FEDCORE.start(3, ratings.num_items, config, draws)
        together = InProcess(FEDCORE, config, draws, private, Transcript(), RuntimeOptions(threads=1))
        steps = FEDCORE.round(start, 1, config, draws)
        answer: Answer | None = None
        for _ in range(num_asks):
            answer = together.serve(steps.send(answer), 1)  # type: ignore[arg-type]
        options = RuntimeOptions(threads=1, losses=lambda _number, _request, to: to == 1)
        InProcess(FEDCORE, config, draws, private, Transcript(), options).run_round(start, 1)
        assert_in_step(private, [0, 2])
        results.append([array.tobytes() for number in (0, 2) for array in vectors_of(private, number)])
    assert results[0] == results[1]


def test_a_step_that_cannot_follow_is_refused() -> None:
    finished = fedcore(some_partners(2), num_rounds=1)
    partner, training = finished.private.partners[0], finished.config.training(1)
    with pytest.raises(HushrecError, match=r"^step 99 cannot follow step \d+; begin the round again$"):
        partner.count(99, 100, [], training, Draws(0))


# --- Lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratings", [some_partners(3), pairwise_common()], ids=["common to all", "pairwise"])
@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("privatizer", ["none", "dp+average"])
def test_of_three_partners_one_is_lost_and_the_others_go_on_in_step(
    ratings: Ratings, lost: int, privatizer: str
) -> None:
    """Lost in the third step of round 2 and, by design, for good: nobody asks it or writes to it again."""
    asked = iter(range(10_000))
    left, lost_after, steps_seen = [number for number in range(3) if number != lost], [], []

    def losses(round_number: int, request: type, to: np.ndarray) -> np.ndarray:
        is_lost = request is TakeStep and round_number == 2 and next(asked) == 2
        return (to == lost) & is_lost

    def look(private: Partnership, ask: Ask, answer: Answer) -> None:
        if len(answer.lost):
            lost_after.append([array.tobytes() for array in vectors_of(private, lost)])
        if lost_after:
            assert_in_step(private, left)
            steps_seen.append(ask)
            assert lost not in ask.to or len(answer.lost)

    finished = watched(
        ratings, look, losses=losses, num_rounds=3, batch_size=8, unaligned=0.5, privatizer=privatizer
    )
    assert len(steps_seen) > 5
    assert [array.tobytes() for array in vectors_of(finished.private, lost)] == lost_after[0], "it stays as it was"
    assert finished.states[-1].is_present.tolist() == [number != lost for number in range(3)]
    third = [sent for sent in finished.transcript.recorded if sent.round_number == 3]
    assert third
    for sent in third:
        assert lost not in sent.numbers
        assert sent.addressees is None or lost not in sent.addressees
    assert (finished.states[3].digests[left] != finished.states[2].digests[left]).any(axis=1).all()
    np.testing.assert_array_equal(finished.states[3].digests[lost], finished.states[1].digests[lost])


def vectors_of(private: Partnership, number: int) -> list[np.ndarray]:
    partner = private.partners[number]
    return [partner.user_factors, partner.item_factors, partner.layers]


@pytest.mark.parametrize("request_type", [Align, TakeStep, Settle])
def test_of_two_partners_none_may_be_lost(request_type: type) -> None:
    told = r"^fewer than two partners are left; bring the others back and use --resume$"
    with pytest.raises(HushrecError, match=told):
        fedcore(some_partners(2), losses=lambda _round, request, to: (to == 1) & (request is request_type))


@pytest.mark.parametrize("alignment", ["psi", "keyed-hash"])
def test_a_partner_lost_in_alignment_is_left_out_and_the_others_begin_again(alignment: str) -> None:
    """Users that only the lost one shares are no longer common. With psi, it is lost in the middle of the ring."""
    asks = iter(range(100))
    lost_at = 1 if alignment == "psi" else 0
    finished = fedcore(
        pairwise_common(), num_rounds=2, alignment=alignment,
        losses=lambda _round, request, to: (to == 1) & (request is Align) & (next(asks) == lost_at),
    )  # fmt: skip
    one, lost, other = finished.private.partners
    for partner, name in ((one, "a"), (other, "c")):
        common = ids_of(finished.private, partner)[0][partner.common_users >= 0]
        assert sorted({user.partition("-")[0] for user in common}) == ["abc", "ac"], name
    assert not lost.user_factors.any()
    assert assert_in_step(finished.private, [0, 2]) == 6 * 5
    assert finished.states[-1].is_present.tolist() == [True, False, True]


def test_one_partner_alone_trains() -> None:
    """It has nobody to align with or write to: no mail at all, and its errors shrink."""
    ratings = some_partners(2).without_the_last()
    finished = fedcore(ratings, num_rounds=30, inference="auto", learning_rate=0.4)
    sent = {type(one.message) for one in finished.transcript.recorded}
    assert sent == {Align, Aligned, TakeStep, Stepped, Settle, Settled}
    (partner,) = finished.private.partners
    assert (partner.common_users == -1).all()
    predicted = np.sum(partner.user_factors[partner.users] * partner.item_factors[partner.items], axis=1)
    assert np.mean((predicted - partner.ratings) ** 2) < 0.5 * partner.ratings.var()


# --- What is sent ------------------------------------------------------------------------------------------


def test_noise_is_on_what_is_sent_and_on_what_the_sender_itself_moves_by() -> None:
    """dp: rows lie on the grid of the noise, with more than its scale; average: one row per user and step."""
    ratings = some_partners(2)
    plain, noised, averaged = (
        fedcore(ratings, num_rounds=1, privatizer=privatizer) for privatizer in ("none", "dp", "average")
    )
    rows = {
        name: np.concatenate([mail.message.gradients.values for mail in finished.sent(UserGradients)])
        for name, finished in (("none", plain), ("dp", noised), ("average", averaged))
    }
    assert rows["none"].shape == rows["dp"].shape
    assert np.abs(rows["none"]).mean() < 0.002 < np.abs(rows["dp"]).mean()
    scale = 0.1 / 15
    assert np.abs(rows["dp"]).mean() == pytest.approx(scale, rel=0.1)
    assert len(rows["average"]) < len(rows["none"])
    for mail in averaged.sent(UserGradients):
        for place in range(len(mail.numbers)):
            users = mail.message.users.part(place, place + 1).values
            assert len(np.unique(users)) == len(users)


def test_no_noise_is_used_twice() -> None:
    """With hardly any clip rows are noise: no number of any step, round, partner, user or item repeats."""
    finished = fedcore(some_partners(2), num_rounds=2, privatizer="dp", unaligned=0.0, clip=1e-6, epsilon=2e-6)
    rows = np.concatenate([mail.message.gradients.values.ravel() for kind in (UserGradients, ItemGradients)
                           for mail in finished.sent(kind)])  # fmt: skip
    assert len(rows) > 4000
    # On a grid of 2^-13 some single numbers are equal by chance; runs of four are not (chance below 1e-6).
    runs = np.lib.stride_tricks.sliding_window_view(rows, 4)
    assert len(np.unique(runs, axis=0)) == len(runs)


def test_the_server_sees_no_mail_and_only_sizes_digests_and_who_is_there() -> None:
    finished = fedcore(some_partners(3), num_rounds=1, model="neucf", unaligned=0.5)
    seen = {type(one.message) for one in finished.transcript.seen_by(TakeStep.sender)}
    assert seen == {Align, Aligned, TakeStep, Stepped, Settle, Settled}
    for row, partner in enumerate(finished.private.partners):
        np.testing.assert_array_equal(finished.states[-1].digests[row], partner.digest())


def test_mail_of_another_width_is_refused_as_it_comes() -> None:
    """From a partner with other settings: the runtime can name who wrote it; no step ends in a crash."""
    finished = fedcore(some_partners(2), num_rounds=1, num_factors=4)
    inbox = FEDCORE.inboxes[UserGradients](finished.private, FEDCORE.configure({"num_factors": 5}))
    mail = finished.sent(UserGradients)[0]
    with pytest.raises(
        HushrecError, match=r"^gradients of 4 numbers in a row, not 5; agree on the same settings$"
    ):
        inbox.add(mail.addressees, mail.message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": "neucf", "activation": "relu", "inference": "ckks"},
            "ReLU cannot be encrypted; use activation='quadratic', or",
        ),
        (
            {"num_factors": 129},
            "num_factors=129 is too much for encrypted scores; use less, or inference='none'",
        ),
        ({"model": "neucf", "num_factors": 64}, "num_factors=64 is too much for"),
        ({"unaligned": 1.5}, "unaligned=1.5 is not in"),
        ({"epsilon": 0.0}, "epsilon="),
        ({"privatizer": "ldp"}, "bad setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError) as refused:
        FEDCORE.configure(values)
    assert message in str(refused.value)


def test_vectors_too_long_to_encrypt_are_fine_where_nobody_is_served() -> None:
    values = [{"inference": "none"}, {"num_asked": 0}, {"model": "neucf", "activation": "relu"}]
    assert [FEDCORE.configure({"num_factors": 129, **one}).serves_visitors for one in values] == [False] * 3
    assert FEDCORE.configure({"num_factors": 128}).serves_visitors


def test_the_usual_rates_and_sizes_of_each_model() -> None:
    pmf, own, layered = (
        FEDCORE.configure(values)
        for values in ({}, {"learning_rate": 0.2, "decay": 0.5, "num_factors": 7}, {"model": "neucf"})
    )
    assert [pmf.training(number).learning_rate for number in (1, 9)] == [0.4, 0.4]
    assert own.training(3).learning_rate == pytest.approx(0.05)
    assert layered.training(2).learning_rate == pytest.approx(0.135)
    assert (pmf.width, own.width, layered.width) == (20, 7, 32)
    assert (pmf.num_weights, layered.num_weights) == (0, 32 * 16 + 16 + 32)


def test_a_run_without_noise_on_gradients_says_so_aloud() -> None:
    """Noise on the rows of users leaves the layers' gradients of neucf as they are."""
    said = {
        (model, privatizer): FEDCORE.result.warnings(FEDCORE.configure({"model": model, "privatizer": privatizer}))
        for model in ("pmf", "neucf")
        for privatizer in ("none", "average", "dp", "dp+average")
    }
    for (model, privatizer), lines in said.items():
        if not privatizer.startswith("dp"):
            assert len(lines) == 1
            assert f"UNPROTECTED: with privatizer='{privatizer}'," in lines[0]
            assert "use privatizer='dp+average'" in lines[0]
        else:
            assert lines == (
                () if model == "pmf"
                else ("UNPROTECTED: gradients of neucf's layers go to other partners without noise",)
            )  # fmt: skip

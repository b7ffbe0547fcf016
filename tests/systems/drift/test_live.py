"""Live learning: the same numbers as a run over the same events, however many wait; owners come and go."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import Interactions, Owners
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import digest, read_arrays, write_arrays
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems.drift.live import EVERYTHING, Live
from hushrec.systems.drift.live_lines import Change, Event
from hushrec.systems.drift.members import COUNTS

NUM_USERS, NUM_ITEMS = 6, 12
ITEMS = [f"i{number:02}" for number in range(NUM_ITEMS)]
HOLDINGS = {"a": ITEMS[:7], "b": ITEMS[4:10], "c": ITEMS[9:]}  # some items have two owners

Told = list[tuple[str, list[str]]]


def events(num_events: int = 90, seed: int = 1) -> list[Event]:
    """Users come in the order of their ids, as a dataset numbers them."""
    rng = np.random.default_rng(seed)
    users = [*range(NUM_USERS), *rng.integers(0, NUM_USERS, num_events - NUM_USERS).tolist()]
    return [Event(f"u{user}", ITEMS[int(rng.integers(NUM_ITEMS))], bool(rng.random() < 0.6)) for user in users]


def new(system: str = "drift", holdings: dict[str, list[str]] | None = None, **settings: Any) -> Live:
    usual = {"window": 1, "parts": 1, "recommended": 3, "num_factors": 4}
    config = SYSTEMS[system].configure({**usual, **settings})
    return Live(SYSTEMS[system], config, 0, holdings, dict.fromkeys(ITEMS if holdings else (), ""))


def learned(live: Live, stream: Sequence[Event], at_once: int) -> Told:
    told: Told = []
    for first in range(0, len(stream), at_once):
        live.learn(stream[first : first + at_once], lambda user, items: told.append((user, items)))
    return told


def model(live: Live) -> str:
    return digest(result_arrays(live.state))


def as_data(stream: Sequence[Event]) -> Interactions:
    pairs = sorted((item, owner) for owner, held in enumerate(HOLDINGS.values()) for item in held)
    counts = np.bincount([ITEMS.index(item) for item, _ in pairs], minlength=NUM_ITEMS)
    owners = Owners(
        tuple(HOLDINGS),
        np.concatenate([[0], np.cumsum(counts)]),
        np.array([owner for _, owner in pairs], np.int32),
    )
    return Interactions(
        np.array([int(event.user[1:]) for event in stream], np.int32),
        np.array([ITEMS.index(event.item) for event in stream], np.int32),
        np.array([event.is_positive for event in stream], np.float32), np.arange(len(stream)), None,
        np.array([f"u{user}" for user in range(NUM_USERS)]), np.array(ITEMS), None, (0.0, 1.0), "events", "", True,
        holding=owners,
    )  # fmt: skip


@pytest.mark.parametrize(("window", "at_once"), [(1, 1), (1, 70), (4, 4), (4, 40)])
@pytest.mark.parametrize("blocks", ["pairs", "literal"])
def test_live_learning_equals_a_run_over_the_same_events(window: int, at_once: int, blocks: str) -> None:
    live = new(holdings=HOLDINGS, window=window, blocks=blocks)
    told = learned(live, events(), at_once)
    sizes = {"window": window, "parts": 1, "epochs": 1, "num_factors": 4}
    config = SYSTEMS["drift"].configure({**sizes, "blocks": blocks})
    done = run_job(Job(SYSTEMS["drift"], config, 0, as_data(events())), RuntimeOptions(threads=1))
    assert model(live) == digest(result_arrays(done.state))
    start = SYSTEMS["drift"].start(4, NUM_ITEMS, config, live.draws)
    assert not np.array_equal(live.state.item_factors, start.item_factors)  # it learned something
    assert [user for user, _ in told] == [event.user for event in events()]


def test_time_is_what_the_clock_says_and_goes_on_where_it_was() -> None:
    """Three batches; the clock moves on by two at every look."""
    ticks = iter(range(0, 1000, 2))
    config = SYSTEMS["drift"].configure({"window": 1, "parts": 1, "num_factors": 4})
    live = Live(SYSTEMS["drift"], config, 0, HOLDINGS, clock=lambda: float(next(ticks)))
    learned(live, events(), 30)
    assert live.cpu_seconds == 6.0
    again = Live(SYSTEMS["drift"], config, 0, HOLDINGS)
    again.restore(live.arrays())
    learned(again, events()[:5], 5)
    assert again.cpu_seconds == 6.0, "without a clock no time passes"


def test_recommendations_do_not_depend_on_how_many_events_wait() -> None:
    for holdings in (HOLDINGS, None):
        one_by_one = learned(new(holdings=holdings), events(), 1)
        assert one_by_one == learned(new(holdings=holdings), events(), 90)
        assert len({tuple(items) for _, items in one_by_one}) > 15  # they change as it learns


def test_nobody_is_shown_what_it_knows_or_what_was_not_there_yet() -> None:
    known: dict[str, set[str]] = {}
    there: set[str] = set()
    for event, (user, items) in zip(events(), learned(new(), events(), 90), strict=True):
        there.add(event.item)
        known.setdefault(user, set()).add(event.item)
        assert set(items) <= there - known[user]
        assert len(items) == min(3, len(there - known[user]))


def test_an_owner_that_joins_brings_its_items() -> None:
    live = new(holdings={"a": ITEMS[:4]})
    before = learned(live, events()[:40], 10)
    live.change(Change("late", adds=("x1", "x2", *ITEMS[2:6])))
    after = learned(live, [*events()[40:], *[Event("u0", "x1", True)] * 3], 10)
    assert not any(set(items) - set(ITEMS[:4]) for _, items in before)
    assert any("x2" in items for _, items in after)
    assert live.num_owners == 2
    assert live.members.owners[1].counts[COUNTS.accepted] == 3 + sum(
        event.item in ITEMS[2:6] for event in events()[40:]
    )
    assert live.gateway.number == 2


def test_an_item_that_is_dropped_is_neither_learned_from_nor_recommended() -> None:
    live = new(holdings=HOLDINGS)
    learned(live, events()[:60], 20)
    dropped = ITEMS[:5]  # b has the last of them, too
    live.change(Change("a", drops=tuple(dropped)))
    assert not np.isin(live.members.owners[0].blocks.kept().items, range(5)).any()
    vectors = live.state.item_factors[:4].copy()
    told = learned(live, events()[60:], 20)
    assert np.array_equal(live.state.item_factors[:4], vectors)
    shown = {item for _, items in told for item in items}
    assert not shown & set(ITEMS[:4])
    assert ITEMS[4] in shown
    assert live.num_unheld == sum(event.item in ITEMS[:4] for event in events()[60:])


def test_an_owner_that_leaves_takes_its_items_along_and_can_come_back() -> None:
    live = new(holdings=HOLDINGS)
    learned(live, events()[:60], 20)
    num_before = live.members.owners[1].counts[COUNTS.accepted]
    live.change(Change("b", leaves=True))
    assert live.members.owners[1].blocks.size == 0
    assert live.num_owners == 2
    told = learned(live, events()[60:75], 20)
    assert not any(set(items) & set(ITEMS[7:9]) for _, items in told)
    assert live.members.owners[1].counts[COUNTS.accepted] == num_before
    live.change(Change("b", adds=tuple(ITEMS[4:10])))
    learned(live, events()[75:], 20)
    counts = live.members.owners[1].counts
    assert counts[COUNTS.accepted] > num_before
    assert not counts[[COUNTS.replayed, COUNTS.altered, COUNTS.foreign, COUNTS.missing]].any()


@pytest.mark.parametrize("at_once", [1, 5])
def test_while_nobody_holds_anything_events_are_counted_and_remembered(at_once: int) -> None:
    live = new(holdings={"a": ITEMS[:4]})
    learned(live, [Event("u0", ITEMS[0], True)], 1)
    live.change(Change("a", leaves=True))
    had = [Event("u0", ITEMS[1], True), Event("u0", ITEMS[2], False), Event("new", ITEMS[1], True)]
    assert learned(live, had, at_once) == [("u0", []), ("u0", []), ("new", [])]
    assert (live.num_unheld, live.history.size) == (3, 4)
    again = new(holdings={"a": ITEMS[:4]})
    again.restore(live.arrays())
    for kept in (live, again):
        kept.change(Change("a", adds=tuple(ITEMS[:4])))
        assert learned(kept, [Event("u0", ITEMS[0], True)], 1) == [("u0", [ITEMS[3]])]
        ((_, items),) = learned(kept, [Event("new", ITEMS[0], True)], 1)
        assert set(items) == set(ITEMS[2:4])


def test_while_nobody_holds_anything_no_list_is_told_where_none_is_asked_for() -> None:
    live = new(holdings={"a": ITEMS}, recommended=0)
    live.change(Change("a", leaves=True))
    assert learned(live, events()[:5], 5) == []
    assert (live.num_unheld, live.history.size) == (5, 5)


def test_without_owners_one_holds_what_nobody_else_does() -> None:
    live = new()
    learned(live, events(), 30)
    assert live.owners.texts == [EVERYTHING]
    live.change(Change("shop", adds=(ITEMS[0], "new")))
    everything, shop = live.members.owners
    assert 0 in [live.items.numbers[text] for text in live.items.texts[:1]]
    assert live.items.numbers[ITEMS[0]] not in everything.held
    assert not np.isin(everything.blocks.kept().items, shop.held).any()
    live.change(Change("shop", leaves=True))
    learned(live, [Event("u0", ITEMS[0], True)], 1)
    assert live.items.numbers[ITEMS[0]] in everything.held


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("nobody", drops=("i00",)), "never had any"),
        (Change("nobody", leaves=True), "never had any"),
        (Change("a", drops=("i11",)), "does not hold"),
        (Change("a", adds=("new",), drops=("i11",)), "does not hold"),
        (Change("a", drops=("unknown",)), "does not hold"),
        (Change(EVERYTHING, adds=("i00",)), "another name"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(change: Change, text: str) -> None:
    live = new(holdings=HOLDINGS)
    learned(live, events()[:30], 10)
    before = digest(live.arrays())
    with pytest.raises(HushrecError, match=text):
        live.change(change)
    assert digest(live.arrays()) == before


@pytest.mark.parametrize("holdings", [HOLDINGS, None])
@pytest.mark.parametrize(("stop", "blocks"), [(1, "pairs"), (46, "pairs"), (89, "pairs"), (61, "literal")])
def test_to_go_on_from_what_was_kept_changes_no_number(
    tmp_path: Path, holdings: dict[str, list[str]] | None, stop: int, blocks: str
) -> None:
    changes = {45: Change("late", adds=("x1", ITEMS[3])), 60: Change("late", drops=("x1",))}

    def go(live: Live, first: int, last: int) -> Told:
        told: Told = []
        for place in range(first, last):
            if place in changes:
                live.change(changes[place])
            told += learned(live, events()[place : place + 1], 1)
        return told

    whole, before, after = (new(holdings=holdings, blocks=blocks) for _ in range(3))
    told = go(whole, 0, 90)
    assert go(before, 0, stop) == told[:stop]
    write_arrays(tmp_path / "live.npz", before.arrays())
    after.restore(read_arrays(tmp_path / "live.npz"))
    assert digest(after.arrays() | {"private.gateway_state": np.zeros(0)}) == digest(
        before.arrays() | {"private.gateway_state": np.zeros(0)}
    )
    assert go(after, stop, 90) == told[stop:]
    assert model(after) == model(whole)
    counts = sum(owner.counts for owner in after.members.owners)
    assert np.array_equal(counts, sum(owner.counts for owner in whole.members.owners))


def test_after_a_restart_no_number_of_a_message_is_used_again() -> None:
    before, after = new(holdings=HOLDINGS), new(holdings=HOLDINGS)
    learned(before, events()[:50], 10)
    kept = {name: array.copy() for name, array in before.arrays().items()}
    learned(before, events()[50:], 10)  # what was sent after the state was kept, and is lost
    after.restore(kept)
    learned(after, events(seed=2)[50:], 10)
    for then, now in zip(before.members.owners, after.members.owners, strict=True):
        assert now.blocks.kept().sequences.max() > then.last[0]
        new_ones = now.blocks.kept().sequences > kept["private.gateway_state"].max()
        assert now.blocks.kept().sequences[new_ones].min() > then.last[0]


def test_messages_are_counted_in_one_sum_however_many_rounds() -> None:
    few, many = new(holdings=HOLDINGS), new(holdings=HOLDINGS)
    learned(few, events(), 90)
    learned(many, events(), 1)
    assert len(many.transcript.tallies) == len(few.transcript.tallies)
    sent = [
        {kind.__name__: tally for (_, kind), tally in live.transcript.tallies.items()}["SentInteractions"]
        for live in (few, many)
    ]
    assert sent[0] == sent[1]


def test_saros_has_one_owner_and_equals_drift_with_one() -> None:
    saros = new("saros")
    drift = new(theta=1, encryption="none")
    assert learned(saros, events(), 90) == learned(drift, events(), 90)
    assert model(saros) == model(drift)
    with pytest.raises(HushrecError, match="one owner of everything"):
        saros.change(Change("shop", adds=("x",)))


def test_a_model_that_is_not_finite_is_refused() -> None:
    with pytest.raises(DivergedError, match="learning_rate="):
        learned(new(holdings=HOLDINGS, learning_rate=1e30), events(), 10)


def test_another_error_of_a_round_passes_as_it_is() -> None:
    def broken_round(*_: object) -> Iterator[None]:
        raise HushrecError("an owner's key has not come; begin the round again")
        yield

    live = new(holdings=HOLDINGS)
    learned(live, events()[:30], 10)
    live._runtime.system = replace(live.system, round=broken_round)
    with pytest.raises(HushrecError, match=r"^an owner's key has not come; begin the round again$"):
        learned(live, events()[30:], 10)


def test_scores_of_vectors_that_are_not_finite_are_told_as_such() -> None:
    live = new(holdings=HOLDINGS)
    learned(live, events()[:30], 10)
    live.state.item_factors[-1] = np.nan  # of an item without an event
    with pytest.raises(DivergedError, match="the training diverges"):
        learned(live, [Event("u0", ITEMS[0], True)], 1)


def test_what_was_given_at_the_start_is_told_apart_whatever_its_order() -> None:
    config = SYSTEMS["drift"].configure({"window": 1, "parts": 1})

    def given(*start: Any) -> bytes:
        return Live(SYSTEMS["drift"], config, 0, *start).given

    assert given() == given({}, {}) == b""
    same = [{"a": ["1", "2"], "b": ["2"]}, {"b": ["2"], "a": ["2", "1", "1"]}]
    assert len({given(holdings) for holdings in same}) == 1
    others = [{"a": ["1", "2"]}, {"a": ["1"], "b": ["2"]}, {"a": ["1", "2"], "c": ["2"]}]
    assert len({given(holdings) for holdings in [same[0], *others]}) == 4
    assert given(same[0], {"1": ""}) != given(same[0]) != given(same[0], {"1": "One"}) != given(same[0], {"1": ""})


def test_drawn_events_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"\Alive learning takes events as they come and draws none"):
        new(unseen=1)


def test_limits_on_blocks_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"\Alive learning cannot know how many blocks a user will have"):
        new("saros", max_blocks=5)


def test_delays_are_refused() -> None:
    with pytest.raises(HushrecError, match="--max-delay"):
        new(max_delay=2)

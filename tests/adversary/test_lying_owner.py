"""Owners of DRIFT and its server that lie, and columns that say anything: refused, and nothing is learned."""

import resource
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary.hostile_columns import Told, asked, num_lies
from adversary.in_process_runs import PARTNER_SETTINGS, after_rounds, numbers, running
from hushrec.errors import HushrecError, PublicError
from hushrec.protocol import (
    Ask,
    Collect,
    Message,
    Numbers,
    Ragged,
)
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess
from hushrec.systems.drift.cipher import Form, letters_key
from hushrec.systems.drift.deeds import Book, Deed, sign
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.members import Members
from hushrec.systems.drift.messages import (
    Begin,
    HeldVectors,
    NameUsers,
    NextWindow,
    Register,
)
from hushrec.systems.fedcore.inference import EncryptedScores
from systems.runs import Ratings, some_events, some_partners

DRIFT, FEDCORE = SYSTEMS["drift"], SYSTEMS["fedcore"]
SMALL: dict[str, Any] = {"num_factors": 17, "window": 40, "epochs": 1, "parts": 2, "recommended": 2}


# --- A server that lies about who holds what ------------------------------------------------------------------


def registered(runtime: InProcess, round_number: int = 1, counted: int = 0) -> tuple[Any, Numbers]:
    """The true table, after the owners have registered."""
    owners = np.arange(3, dtype=np.int32)
    request = Register(np.array(3, np.int32), np.full(3, counted, np.int32))
    runtime.serve(Ask(owners, request, Collect()), round_number)
    held = [owner.held for owner in runtime.private.owners]
    cells = [numbers(*(owner for owner in range(3) if item in held[owner])) for item in range(30)]
    starts = np.concatenate([[0], np.cumsum([len(cell) for cell in cells])]).astype(np.int64)
    return starts, np.concatenate(cells)


def begin(runtime: InProcess, table: tuple[Any, Numbers], round_number: int = 1) -> Any:
    return asked(runtime, Ask(numbers(3), Begin(*table), Collect()), round_number)


def with_owner(table: tuple[Any, Numbers], owner: int) -> tuple[Any, Numbers]:
    """The table in which one holds everything, beside the others."""
    cells = [np.union1d(cell, [owner]) for cell in np.split(table[1], table[0][1:-1])]
    starts = np.concatenate([[0], np.cumsum([len(cell) for cell in cells])]).astype(np.int64)
    return starts, np.concatenate(cells).astype(np.int32)


@pytest.mark.parametrize("values", [{}, {"encryption": "none"}, {"user_vectors": "users"}])
def test_a_table_that_owners_did_not_sign_for_is_refused(values: dict[str, Any]) -> None:
    """From the first round on; the true one is taken, before and after."""
    runtime = running("drift", some_events(), **SMALL | {"recommended": 0} | values)
    table = registered(runtime)
    assert begin(runtime, with_owner(table, 0)) == (
        "owner 0 has not signed for the items that the table gives it; refuse the table"
    )
    assert not isinstance(begin(runtime, table), str)
    assert "has not signed" in begin(runtime, with_owner(table, 1))
    fewer = table[0].copy()
    fewer[np.flatnonzero(np.diff(fewer))[0] + 1 :] -= 1
    assert "has not signed" in begin(runtime, (fewer, np.delete(table[1], 0)))
    assert not isinstance(begin(runtime, table), str)


def test_an_owner_whose_deed_did_not_come_is_refused() -> None:
    runtime = running("drift", some_events(), **SMALL)
    table = registered(runtime)
    runtime.inboxes.clear()
    assert begin(runtime, table) == "the deed of owner 0 has not come; refuse the table"


def test_an_owner_that_signs_for_items_of_others_after_the_start_is_refused() -> None:
    """The colluding owner signs whatever it is asked to, with its own key; its first deed is what counts."""
    runtime = running("drift", some_events(), **SMALL)
    assert not isinstance(begin(runtime, registered(runtime)), str)
    runtime.private.owners[0].held = np.arange(30, dtype=np.int32)
    refused = begin(runtime, registered(runtime, 2, 1), 2)
    assert refused in {
        f"owner 0 claims items that owner {other} held before; refuse the table" for other in (1, 2)
    }
    assert runtime.private.only_gateway().clock[0] == 1


def test_an_owner_that_claims_everything_from_the_start_is_seen() -> None:
    """It gets what it claims; the run tells that one owner shares nearly all that there is."""
    ratings = some_events()
    held = [np.arange(30), *np.split(ratings.rows.held, ratings.rows.held_starts[1:-1])[1:]]  # type: ignore[union-attr]
    starts = np.cumsum([0, *map(len, held)]).astype(np.int64)
    rows = replace(ratings.rows, held=np.concatenate(held).astype(np.int32), held_starts=starts)  # type: ignore
    greedy = after_rounds("drift", Ratings(rows, 30), 1, **SMALL)
    honest = after_rounds("drift", ratings, 1, **SMALL)
    facts = [DRIFT.result.facts(one.private, one.config) for one in (honest, greedy)]
    assert facts[0]["most items that an owner shares"] < facts[0]["of items that it holds"] < 30
    assert facts[1]["of items that it holds"] == 30
    assert facts[1]["most items that an owner shares"] == len(set(np.concatenate(held[1:]).tolist()))


ITEMS = {0: numbers(0, 1), 1: numbers(1, 2)}
SEEDS = {number: bytes([number + 1]) * 32 for number in range(4)}


def table_of(items: dict[int, Numbers]) -> tuple[Any, Numbers]:
    cells = [numbers(*(owner for owner in sorted(items) if item in items[owner])) for item in range(6)]
    return np.concatenate([[0], np.cumsum([len(cell) for cell in cells])]).astype(np.int64), np.concatenate(cells)


def deeds_of(items: dict[int, Numbers], users_side: int = 2) -> dict[int, Deed]:
    return {owner: sign(SEEDS[owner], owner, users_side, bytes(16), held) for owner, held in items.items()}


def admitted() -> Book:
    book = Book()
    book.admit(*table_of(ITEMS), deeds_of(ITEMS), 2)
    return book


def test_who_comes_later_gets_what_nobody_held_and_nothing_else() -> None:
    """Owner 3 joins with item 4; with item 1 as well it is refused, unless the users' side agreed to that."""
    book, joined = admitted(), ITEMS | {3: numbers(4)}
    book.admit(*table_of(joined), deeds_of(joined), 2)
    greedy = ITEMS | {3: numbers(1, 4)}
    with pytest.raises(PublicError, match="owner 3 claims items that owner 0 held before"):
        book.admit(*table_of(greedy), deeds_of(greedy), 2)
    book.agree(3, numbers(1))
    book.admit(*table_of(greedy), deeds_of(greedy), 2)
    assert book.entries[3].items.tolist() == [1, 4]


def test_an_item_that_was_given_up_can_be_claimed() -> None:
    book, fewer = admitted(), {0: numbers(0), 1: numbers(2)}
    book.admit(*table_of(fewer), deeds_of(fewer), 2)
    more = {0: numbers(0, 1), 1: numbers(2)}
    book.admit(*table_of(more), deeds_of(more), 2)
    with pytest.raises(PublicError, match="owner 1 claims items that owner 0 held before"):
        book.admit(*table_of(ITEMS), deeds_of(ITEMS), 2)


def test_an_owner_that_is_away_keeps_its_items() -> None:
    book = admitted()
    alone = {0: ITEMS[0]}
    book.admit(*table_of(alone), deeds_of(alone), 2)
    greedy = {0: numbers(0, 1, 2)}
    with pytest.raises(PublicError, match="owner 0 claims items that owner 1 held before"):
        book.admit(*table_of(greedy), deeds_of(greedy), 2)
    book.admit(*table_of(ITEMS), deeds_of(ITEMS), 2)


def test_another_key_to_sign_with_is_refused() -> None:
    book, forged = admitted(), deeds_of(ITEMS)
    forged[1] = sign(SEEDS[3], 1, 2, b"k" * 16, ITEMS[1])
    with pytest.raises(PublicError, match="owner 1 signs with another key than at the start"):
        book.admit(*table_of(ITEMS), forged, 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda deed: replace(deed, key=b"k" * 16),
        lambda deed: replace(deed, signature=bytes(64)),
        lambda deed: replace(deed, signature=deed.signature[:63]),
        lambda deed: replace(deed, signing_key=bytes(32)),
        lambda deed: replace(deed, signing_key=b""),
    ],
)
def test_a_deed_that_was_changed_is_refused(change: Callable[[Deed], Deed]) -> None:
    deeds = deeds_of(ITEMS)
    deeds[0] = change(deeds[0])
    with pytest.raises(PublicError, match="owner 0 has not signed"):
        Book().admit(*table_of(ITEMS), deeds, 2)


def test_a_deed_to_somebody_else_is_refused() -> None:
    """Who passes on a deed that was sent to it, key and all, is noticed."""
    with pytest.raises(PublicError, match="owner 0 has not signed"):
        Book().admit(*table_of(ITEMS), deeds_of(ITEMS, users_side=1), 2)


def test_a_book_is_the_same_after_a_restart() -> None:
    book = admitted()
    again = Book.unpacked(book.packed())
    assert again.num_at_start == book.num_at_start == 2
    assert {owner: entry.deed for owner, entry in again.entries.items()} == deeds_of(ITEMS)
    with pytest.raises(PublicError, match="owner 0 claims items"):
        again.admit(*table_of({0: numbers(0, 1, 2)}), deeds_of({0: numbers(0, 1, 2)}), 2)
    assert Book.unpacked(np.empty(0, np.int64)) == Book()


@pytest.mark.parametrize("kind", [Register, NameUsers, HeldVectors])
def test_an_owner_writes_to_nobody_but_the_users_side(kind: type[Message]) -> None:
    """Asked to send its key, or its users, to owner 2, owner 1 refuses; to owner 0, which is below it, at once."""
    runtime = running("drift", some_events(), **SMALL | {"recommended": 0, "user_vectors": "users"})
    if kind is not Register:
        registered(runtime)
    for users_side in (0, 1, 2):
        values = {"users_side": np.array(users_side, np.int32), "window": np.array(0)}
        if kind is Register:
            values = {"users_side": values["users_side"], "counted_round": numbers(0)}
        if kind is HeldVectors:
            values["vectors"] = Ragged.one(np.zeros((0, 17), np.float32))  # type: ignore[assignment]
        if kind is Register and users_side == 2:
            registered(runtime)
        found = asked(runtime, Ask(numbers(1), kind(**values), Collect()), 1)
        assert found == f"party {users_side} is not the users' side of this run; ask with its number"


# --- Nonces -----------------------------------------------------------------------------------------------------

TABLE = (np.array([0, 1, 3, 3, 4]), numbers(0, 0, 1, 1))
KEYS = {0: b"a" * 16, 1: b"b" * 16}
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["window", "begin", "restart", "older state", "lost state"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
)


def some_gateway() -> Gateway:
    users, items = numbers(0, 1, 2, 0, 1, 2, 0, 1), numbers(0, 1, 2, 3, 3, 1, 0, 1)
    gateway = Gateway(2, users, items, np.arange(8) % 2 == 0, 3)
    gateway.begin(1, *TABLE)
    return gateway


def restarted(gateway: Gateway, kept: Members) -> Gateway:
    fresh = Members(numbers(2), [], some_gateway())
    fresh.gateway_state, fresh.table = kept.gateway_state.copy(), kept.table.copy()
    return fresh.only_gateway()


@given(ACTS, st.sampled_from([Form(), Form(2), Form(3, is_flag_inside=True)]))
@settings(max_examples=60, deadline=None)
def test_a_key_and_a_nonce_never_meet_two_contents(acts: list[tuple[str, int, int]], form: Form) -> None:
    """Windows in any order and of any events, rounds begun with other tables, restarts with states of any age."""
    gateway, used = some_gateway(), dict[tuple[int, bytes, int], bytes]()
    oldest = deepcopy(Members(numbers(2), [], gateway))
    for act, number, other in acts:
        if act == "begin":
            gateway.begin(1 + other, TABLE[0], np.zeros_like(TABLE[1]) if number == 1 else TABLE[1])
        elif act == "restart":
            gateway = restarted(gateway, Members(numbers(2), [], gateway))
        elif act == "older state":
            gateway = restarted(gateway, oldest)
        elif act == "lost state":
            gateway = some_gateway()
        else:
            try:
                sent = gateway.window(number, other, other + number, KEYS, form)
            except HushrecError:
                continue
            for owner, mail in sent.items():
                key = letters_key(KEYS[owner], mail.salt)
                for sequence, content in zip(mail.sequences.tolist(), mail.contents, strict=True):
                    met = used.setdefault((owner, key, sequence), content.tobytes())
                    assert met == content.tobytes()


def test_the_window_of_another_round_is_refused() -> None:
    """Before, the same numbers of messages met the events of another round: the nonces of two contents."""
    runtime = running("drift", some_events(), **SMALL)
    begin(runtime, registered(runtime))
    ask = Ask(numbers(3), NextWindow(np.array(0)), Collect())
    assert not isinstance(asked(runtime, ask, 1), str)
    assert asked(runtime, ask, 2) == "round 2 was not begun with the users' side; begin it"


# --- Columns ----------------------------------------------------------------------------------------------------

RUNS: dict[str, tuple[str, dict[str, Any], Callable[[], Ratings]]] = {
    "drift": ("drift", SMALL, lambda: some_events()),
    "drift with users": ("drift", SMALL | {"user_vectors": "users"}, lambda: some_events()),
    "saros": ("saros", SMALL, lambda: some_events(1)),
    "fedcore": ("fedcore", PARTNER_SETTINGS | {"model": "neucf", "unaligned": 0.5}, lambda: some_partners(2)),
    "fedcore of three": ("fedcore", PARTNER_SETTINGS, lambda: some_partners(3)),
}
CASES = [
    (run, kind)
    for run, (name, values, _) in RUNS.items()
    for kind in SYSTEMS[name].messages
    if kind.kinds() and kind.__module__ != EncryptedScores.__module__
]


@pytest.mark.parametrize(("run", "kind"), CASES, ids=[f"{run}-{kind.__name__}" for run, kind in CASES])
def test_whatever_a_column_says_it_works_or_is_refused(run: str, kind: type[Message]) -> None:
    """Within its type and bounds; no other exception, no loop without end, no gigabyte."""
    name, values, make = RUNS[run]
    system, ratings = SYSTEMS[name], make()
    config = system.configure(values)
    count = num_lies(system, config, ratings, kind, config.num_rounds)
    for lie in range(count):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = Told(system, config, ratings, kind, lie)
        refusal = told.run(config.num_rounds)
        assert "\n" not in refusal, told.words
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000, told.words

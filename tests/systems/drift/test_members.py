from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.data import OwnerRows
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.systems.drift.blocks import Groups
from hushrec.systems.drift.cipher import Form, Letters, seal_interactions
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.members import COUNTS, Members, Owner, owner_key

KEY = b"k" * 16
FORM = Form()
PACKED = ("entries", "owner_states", "gateway_state", "table")
Event = tuple[int, int, bool]

BLOCK: list[Event] = [(0, 0, False), (0, 2, True), (0, 5, False), (1, 2, False)]
"""One completed block of user 0, and two open ones."""


def some_owner() -> Owner:
    owner = Owner(3, np.array([0, 2, 5], np.int32), KEY)
    owner.begin(1, 0)
    return owner


def letters(events: list[Event], first: int = 1, form: Form = FORM, key: bytes = KEY, owner: int = 3) -> Letters:
    users, items = (np.array([event[place] for event in events], np.int32) for place in (0, 1))
    signs = np.array([event[2] for event in events], np.bool_)
    return seal_interactions(key, owner, form, first, users, items, signs)


def take(mail: Letters, places: list[int]) -> Letters:
    return Letters(mail.sequences[places], mail.flags[places], mail.contents[places], mail.salt)


def take_in(owner: Owner, window: int, *mail: Letters, form: Form = FORM) -> Groups:
    return owner.take_in(window, mail, form, 1, "blocks")


def counts(owner: Owner) -> dict[str, int]:
    """Those that are not zero."""
    return {name: int(owner.counts[place]) for name, place in COUNTS._asdict().items() if owner.counts[place]}


def kept(owner: Owner) -> list[Event]:
    entries = owner.blocks.kept()
    return list(zip(entries.users.tolist(), entries.items.tolist(), entries.is_positive.tolist(), strict=True))


def assert_same(one: Groups, other: Groups) -> None:
    for name, left, right in zip(Groups._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


# --- An owner ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [Form(), Form(3), Form(2, is_flag_inside=True), Form(3, is_encrypted=False)])
def test_an_owner_reads_its_mail_and_wants_vectors(form: Form) -> None:
    """Of user 0 and items 0 and 2: those of the completed block."""
    owner = some_owner()
    groups = take_in(owner, 0, letters(BLOCK, form=form), form=form)
    assert (groups.is_item.tolist(), groups.numbers.tolist()) == ([0, 1, 1], [0, 0, 2])
    assert counts(owner) == {"accepted": 4}
    assert kept(owner) == BLOCK
    assert owner.num_waiting == 2


def test_the_same_window_again_changes_nothing() -> None:
    owner = some_owner()
    groups, before = take_in(owner, 0, letters(BLOCK)), owner.counts.copy()
    assert_same(take_in(owner, 0, letters(BLOCK)), groups)
    assert_same(owner.wanted(1), groups)
    np.testing.assert_array_equal(owner.counts, before)
    assert kept(owner) == BLOCK


def test_a_window_that_is_over_is_refused() -> None:
    owner = some_owner()
    take_in(owner, 0, letters(BLOCK))
    take_in(owner, 1)
    with pytest.raises(HushrecError, match="window 0 is over; ask for the next one"):
        take_in(owner, 0, letters(BLOCK))


def test_replayed_mail_is_refused_and_counted() -> None:
    owner = some_owner()
    take_in(owner, 0, letters(BLOCK))
    assert not take_in(owner, 1, letters(BLOCK)).num_blocks
    assert counts(owner) == {"accepted": 4, "replayed": 4}
    assert kept(owner) == BLOCK
    assert owner.last.tolist() == [4]


def test_reordered_mail_is_refused_and_counted() -> None:
    """Of the messages 1, 3, 2, 4 the third is older than one that was read, and 2 was left out before 3."""
    owner = some_owner()
    take_in(owner, 0, take(letters(BLOCK), [0, 2, 1, 3]))
    assert counts(owner) == {"accepted": 3, "replayed": 1, "missing": 1}
    assert kept(owner) == [BLOCK[0], BLOCK[2], BLOCK[3]]


@pytest.mark.parametrize(
    ("form", "column"),
    [
        *((Form(), column) for column in ("contents", "flags", "sequences")),
        *((Form(is_flag_inside=True), column) for column in ("contents", "sequences")),
    ],
)
def test_altered_mail_is_refused_and_counted(form: Form, column: str) -> None:
    """Whatever of it was altered: the others are read, also behind a number that was made larger."""
    owner, mail = some_owner(), letters(BLOCK, form=form)
    values = getattr(mail, column).copy()
    values[1] ^= 1 << 6 if column == "sequences" else 1
    take_in(owner, 0, replace(mail, **{column: values}), form=form)
    assert counts(owner) == {"accepted": 3, "altered": 1}
    assert kept(owner) == [BLOCK[0], BLOCK[2], BLOCK[3]]
    assert owner.last.tolist() == [4]


@pytest.mark.parametrize("values", [{"key": b"x" * 16}, {"owner": 4}])
def test_mail_of_another_key_or_owner_changes_nothing(values: dict[str, Any]) -> None:
    owner = some_owner()
    assert not take_in(owner, 0, letters(BLOCK, **values)).num_blocks
    assert counts(owner) == {"altered": 4}
    assert (kept(owner), owner.last.tolist()) == ([], [0])
    take_in(owner, 1, letters(BLOCK))
    assert kept(owner) == BLOCK, "the real ones are read after that"


@pytest.mark.parametrize("item", [1, 6, 2**31 - 1])
def test_interactions_with_items_of_others_are_refused_and_counted(item: int) -> None:
    owner = some_owner()
    take_in(owner, 0, letters([BLOCK[0], (0, item, True), BLOCK[1]]))
    assert counts(owner) == {"accepted": 2, "foreign": 1}
    assert kept(owner) == BLOCK[:2]


def test_an_owner_of_nothing_reads_nothing() -> None:
    owner = Owner(3, np.empty(0, np.int32), KEY)
    owner.begin(1, 0)
    take_in(owner, 0, letters(BLOCK))
    assert counts(owner) == {"foreign": 4}


def test_missing_mail_is_counted() -> None:
    """Messages 1, 4 of a window, 7 of the next one: 2, 3, 5 and 6 are missing."""
    owner, mail = some_owner(), letters([*BLOCK, *BLOCK])
    take_in(owner, 0, take(mail, [0, 3]))
    take_in(owner, 1, take(mail, [6]))
    assert counts(owner) == {"accepted": 3, "missing": 4}


@pytest.mark.parametrize("window", [0, 1])
def test_numbers_that_a_broken_round_used_are_not_missing(window: int) -> None:
    """The round begins again; its first mail, in any window, has the numbers 9 and on."""
    owner = some_owner()
    take_in(owner, 0, letters(BLOCK[:2]))
    owner.begin(2, 1)
    take_in(owner, 0, letters(BLOCK[2:], 3))
    owner.begin(2, 1)
    for quiet in range(window):
        take_in(owner, quiet)
    take_in(owner, window, letters(BLOCK[2:], 9))
    assert counts(owner) == {"accepted": 4}
    assert kept(owner) == BLOCK


def test_a_round_begun_again_gives_the_same_groups() -> None:
    owner = some_owner()
    take_in(owner, 0, letters(BLOCK[:2]))
    owner.begin(2, 1)
    groups = take_in(owner, 0, letters(BLOCK[2:], 3))
    assert groups.num_blocks == 1
    for first in (5, 7):
        owner.begin(2, 1)
        assert owner.num_waiting == 2
        assert_same(take_in(owner, 0, letters(BLOCK[2:], first)), groups)
    owner.begin(3, 2)
    assert not take_in(owner, 0).num_blocks, "what was learned from is over"


def test_a_round_that_did_not_count_is_undone_whatever_comes_next() -> None:
    """Round 2 broke off and was repeated without the owner; it is back in round 4."""
    owner = some_owner()
    take_in(owner, 0, letters(BLOCK[:2]))
    owner.begin(2, 1)
    assert take_in(owner, 0, letters(BLOCK[2:], 3)).num_blocks == 1
    owner.begin(4, 1)
    assert (counts(owner), kept(owner)) == ({"accepted": 2}, BLOCK[:2])
    assert take_in(owner, 0, letters(BLOCK[2:], 9)).num_blocks == 1


def test_a_stream_that_begins_anew_goes_on_with_no_open_block() -> None:
    """A completed block that waits is kept; begun again, the round finds the open one, and ends it again."""
    owner = Owner(3, np.array([0, 2, 5], np.int32), KEY, parts=1)
    owner.begin(1, 0)
    owner.take_in(0, [letters(BLOCK)], FORM, 2, "blocks")  # one completed, but two are wanted
    for _ in range(2):
        owner.begin(2, 1)
        assert owner.num_waiting == 2
        again = letters([(0, 2, True), (0, 0, False), (0, 5, True), (0, 0, False)], int(owner.last[0]) + 1)
        groups = owner.take_in(0, [again], FORM, 2, "blocks")
        assert groups.num_blocks == 2
        assert len(groups.row_of_entry) == 4, "bad 5, open before, is in no block"
    owner.parts = 0  # goes on and on
    owner.begin(3, 2)
    assert kept(owner) == [(0, 0, False)]


def test_a_number_beyond_all_users_is_foreign() -> None:
    owner = some_owner()
    take_in(owner, 0, letters([(2**31 - 1, 0, True), *BLOCK[:1]]))
    assert counts(owner) == {"accepted": 1, "foreign": 1}


def test_numbers_left_out_after_a_foreign_message_are_missing() -> None:
    owner, mail = some_owner(), letters([(0, 1, True), *BLOCK])
    take_in(owner, 0, take(mail, [0, 3]))
    assert counts(owner) == {"accepted": 1, "foreign": 1, "missing": 2}


# --- The users' side ---------------------------------------------------------------------------------------

TABLE = (np.array([0, 1, 3, 3, 4]), np.array([0, 0, 1, 1], np.int32))
"""Item 0 has owner 0, item 1 both, item 2 nobody, item 3 owner 1."""
KEYS = {0: b"a" * 16, 1: b"b" * 16}


def some_gateway() -> Gateway:
    """Events (user, item): (0, 0), (1, 1), (2, 2), (0, 3), (1, 9), (2, 1), (0, 0); every second one is good."""
    users, items = np.array([0, 1, 2, 0, 1, 2, 0], np.int32), np.array([0, 1, 2, 3, 9, 1, 0], np.int32)
    gateway = Gateway(2, users, items, np.arange(7) % 2 == 0, 3)
    gateway.begin(1, *TABLE)
    return gateway


def read(sent: dict[int, Letters], form: Form = FORM) -> dict[int, list[tuple[int, int]]]:
    """What owners read, without regard to what they hold."""
    found = {}
    for number, mail in sent.items():
        owner = Owner(number, np.arange(10, dtype=np.int32), KEYS[number])
        owner.begin(1, 0)
        take_in(owner, 0, mail, form=form)
        found[number] = [(user, item) for user, item, _ in kept(owner)]
    return found


def test_an_event_goes_to_all_owners_of_its_item_in_order() -> None:
    """Items 2 (of nobody) and 9 (which nobody knows) go nowhere."""
    sent = some_gateway().window(0, 0, 7, KEYS, FORM)
    assert read(sent) == {0: [(0, 0), (1, 1), (2, 1), (0, 0)], 1: [(1, 1), (0, 3), (2, 1)]}
    assert [mail.sequences.tolist() for mail in sent.values()] == [[1, 2, 3, 4], [1, 2, 3]]


def test_a_window_about_nobodys_items_sends_nothing() -> None:
    gateway = some_gateway()
    assert gateway.window(0, 2, 3, KEYS, FORM) == {}
    assert gateway.window(1, 4, 5, KEYS, FORM) == {}
    assert gateway.window(2, 7, 9, KEYS, FORM) == {}, "behind the end of the stream"


def test_a_window_again_gives_the_same_letters() -> None:
    gateway = some_gateway()
    gateway.window(0, 0, 3, KEYS, FORM)
    first, again = (gateway.window(1, 3, 7, KEYS, FORM) for _ in range(2))
    assert first.keys() == again.keys()
    for owner, mail in first.items():
        for name in ("sequences", "flags", "contents"):
            np.testing.assert_array_equal(getattr(mail, name), getattr(again[owner], name))
    with pytest.raises(HushrecError, match="window 0 is over; ask for the next one"):
        gateway.window(0, 0, 3, KEYS, FORM)


def test_without_an_owners_key_nothing_is_sent() -> None:
    with pytest.raises(HushrecError, match="an owner's key has not come; begin the round again"):
        some_gateway().window(0, 0, 7, {0: KEYS[0]}, FORM)
    assert set(some_gateway().window(0, 0, 7, {}, Form(is_encrypted=False))) == {0, 1}


def test_users_are_shown_what_they_do_not_know() -> None:
    """User 0 knows items 0 and 3 after the first four events."""
    gateway = some_gateway()
    gateway.note_seen(0, 4)
    gateway.show(np.array([0, 2], np.int32), np.array([[0, 1, 3, 2], [0, 1, 3, 2]], np.int32), 2)
    assert {user: items.tolist() for user, items in gateway.shown.items()} == {0: [1, 2], 2: [0, 1]}


ACTS = st.lists(
    st.tuples(st.sampled_from(["next", "again", "begin again", "next round", "restart"]), st.integers(1, 4)),
    max_size=20,
)


@given(ACTS, st.sampled_from([Form(), Form(2), Form(3, is_flag_inside=True)]))
def test_a_key_and_a_number_never_meet_two_contents(acts: list[tuple[str, int]], form: Form) -> None:
    """Whatever happens: a window asked for again, a round begun again with fewer owners, a new process."""
    gateway, used = some_gateway(), dict[tuple[int, int], bytes]()
    window, place, length, round_number = -1, 0, 1, 1
    for act, number in acts:
        if act == "restart":
            gateway = restarted(Members(np.array([2], np.int32), [], gateway)).only_gateway()
            continue
        if act in ("begin again", "next round"):
            round_number += act == "next round"
            owners = np.zeros_like(TABLE[1]) if number == 1 else TABLE[1]
            gateway.begin(round_number, TABLE[0], owners)
            window, place = -1, number - 1
            continue
        if act == "next" or window < 0:
            window, place, length = window + 1, place + length, number
        for owner, mail in gateway.window(window, place, place + length, KEYS, form).items():
            for sequence, content in zip(mail.sequences.tolist(), mail.contents, strict=True):
                assert used.setdefault((owner, sequence), content.tobytes()) == content.tobytes()


# --- All of them -------------------------------------------------------------------------------------------


def restarted(parties: Members) -> Members:
    """The same after what a checkpoint does: a new process has data and keys, and what was kept."""
    owners = [Owner(owner.number, owner.held, owner.key) for owner in parties.owners]
    gateway = parties.gateway
    if gateway is not None:
        gateway = Gateway(gateway.number, gateway.users, gateway.items, gateway.is_positive, gateway.num_users)
    fresh = Members(parties.numbers, owners, gateway)
    for name in PACKED:
        setattr(fresh, name, getattr(parties, name).copy())
    return fresh


def some_parties(num_events: int = 60) -> Members:
    draws = np.random.default_rng(0)
    users, items = draws.integers(0, 4, num_events), draws.integers(0, 4, num_events)
    rows = OwnerRows(
        ("a", "b"), np.array([0, 2, 4]), np.array([0, 1, 1, 3], np.int32), True, users.astype(np.int32),
        items.astype(np.int32), draws.random(num_events) < 0.5, 4,
    )  # fmt: skip
    parties = Members.enrol(np.arange(3, dtype=np.int32), rows, 1, Draws(0))
    for owner in parties.owners:
        owner.begin(1, 0)
    parties.only_gateway().begin(1, *TABLE)
    return parties


def exchange(parties: Members, window: int, size: int = 10, theta: int = 2) -> list[Groups]:
    keys = {owner.number: owner.key for owner in parties.owners}
    sent = parties.only_gateway().window(window, window * size, (window + 1) * size, keys, FORM)
    return [
        owner.take_in(window, [sent[owner.number]] if owner.number in sent else [], FORM, theta, "blocks")
        for owner in parties.owners
    ]


def test_enrolled_parties_hold_what_is_theirs() -> None:
    parties = some_parties()
    assert [owner.held.tolist() for owner in parties.owners] == [[0, 1], [1, 3]]
    assert len({owner.key for owner in parties.owners}) == 2
    assert (parties.only_gateway().number, parties.only_gateway().num_users) == (2, 4)


@pytest.mark.parametrize("restart_at", range(6))
def test_a_restart_in_any_window_changes_nothing(restart_at: int) -> None:
    """Between the windows, and between what is wanted and what is learned."""
    undisturbed, parties = some_parties(), some_parties()
    num_blocks = 0
    for window in range(6):
        expected = exchange(undisturbed, window)
        if window == restart_at:
            parties = restarted(parties)
        found = exchange(parties, window)
        if window == restart_at:
            parties = restarted(parties)
            found = [owner.wanted(2) for owner in parties.owners]
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
        num_blocks += sum(groups.num_blocks for groups in expected)
    assert num_blocks >= 8
    for name in PACKED:
        np.testing.assert_array_equal(getattr(parties, name), getattr(undisturbed, name))


def test_nodes_have_some_of_the_parties() -> None:
    """One of an owner without the users' side, one of the users' side alone."""
    nothing, stream = np.empty(0, np.int32), np.array([0, 1], np.int32)
    of_owner = OwnerRows(("b",), np.array([0, 2]), np.array([1, 3], np.int32), False, nothing, nothing, nothing, 0)
    of_users = OwnerRows((), np.array([0]), nothing, True, stream, stream, stream > 0, 2)
    owner = Members.enrol(np.array([1], np.int32), of_owner, 1, Draws(0))
    users = Members.enrol(np.array([2], np.int32), of_users, 1, Draws(0))
    assert (owner.owners[0].number, owner.gateway) == (1, None)
    assert owner.owners[0].key == some_parties().owners[1].key
    assert (users.owners, users.only_gateway().number) == ([], 2)
    for parties in (owner, users):
        for name in PACKED:
            again = getattr(restarted(parties), name)
            np.testing.assert_array_equal(again, getattr(parties, name))


def test_keys_depend_on_seed_and_number() -> None:
    keys = {owner_key(Draws(seed), number) for seed in range(3) for number in range(3)}
    assert len(keys) == 9
    assert {len(key) for key in keys} == {16}
    assert owner_key(Draws(1), 2) == owner_key(Draws(1), 2)

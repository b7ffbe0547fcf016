import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.errors import HushrecError
from hushrec.protocol import (
    UNNAMED,
    Answer,
    Collect,
    Message,
    Ragged,
    Recorded,
    Role,
    Seat,
    Tally,
    Transcript,
    View,
    each,
    kept,
    kept_arrays,
    packed,
    ragged,
    restore,
    restored,
    result_arrays,
    shared,
)


@dataclass(frozen=True, eq=False)
class Mixed(Message):
    sender, receiver = Role.SERVER, Role.CLIENT
    table: Any = shared(np.float32, 2)
    rank: Any = each(np.int32, low=0, high=9)
    rows: Any = ragged(np.int32, low=0)
    more: Any = ragged(np.float32, 2)


@dataclass(frozen=True, eq=False)
class Empty(Message):
    sender, receiver = Role.CLIENT, Role.DENOISER


@dataclass(frozen=True, eq=False)
class Letters(Message):
    sender, receiver = Role.CLIENT, Role.DENOISER
    words: Any = ragged(np.int32, low=0)


@dataclass(frozen=True, eq=False)
class OwnCipher(Message):
    sender, receiver = Role.USER, Role.OWNER
    has_own_cipher = True
    words: Any = ragged(np.int32, low=0)


def of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


slices = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6)


def as_ragged(held: list[list[int]]) -> Ragged:
    starts = np.concatenate([[0], np.cumsum([len(one) for one in held])]).astype(np.int64)
    return Ragged(starts, np.array([value for one in held for value in one], np.int32))


def as_lists(rows: Ragged) -> list[list[int]]:
    return [rows.values[rows.starts[k] : rows.starts[k + 1]].tolist() for k in range(len(rows))]


@given(held=slices, data=st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_ragged_is_a_list_of_lists(held: list[list[int]], data: st.DataObject) -> None:
    rows = as_ragged(held)
    assert len(rows) == len(held)
    assert rows.lengths.tolist() == [len(one) for one in held]
    first = data.draw(st.integers(0, len(held)))
    last = data.draw(st.integers(first, len(held)))
    assert as_lists(rows.part(first, last)) == held[first:last]
    assert rows.part(first, last).starts[0] == 0
    places = data.draw(st.lists(st.integers(0, len(held) - 1), max_size=5)) if held else []
    assert as_lists(rows.take(np.array(places, np.int64))) == [held[place] for place in places]


def mixed() -> Mixed:
    rows = as_ragged([[1, 2], [], [3]])
    more = Ragged(rows.starts, np.arange(6, dtype=np.float32).reshape(3, 2))
    return Mixed(np.ones((2, 2), np.float32), of(7, 8, 9), rows, more)


def test_fields_are_declared() -> None:
    kinds = {kind.name: kind for kind in Mixed.kinds()}
    assert list(kinds) == ["table", "rank", "rows", "more"]
    assert [kind.layout for kind in kinds.values()] == ["shared", "each", "ragged", "ragged"]
    assert [kind.num_dims for kind in kinds.values()] == [2, 0, 1, 2]
    assert (kinds["rank"].low, kinds["rank"].high, kinds["rank"].dtype) == (0, 9, np.dtype(np.int32))


def test_part_and_take_of_a_message() -> None:
    part = mixed().part(1, 3)
    assert (part.rank.tolist(), as_lists(part.rows), part.more.lengths.tolist()) == ([8, 9], [[], [3]], [0, 1])
    assert part.more.values.tolist() == [[4, 5]]
    taken = mixed().take(np.array([2, 0]))
    assert (taken.rank.tolist(), as_lists(taken.rows)) == ([9, 7], [[3], [1, 2]])
    assert taken.more.values.tolist() == [[4, 5], [0, 1], [2, 3]]
    assert taken.table.tolist() == [[1, 1], [1, 1]]
    empty = Empty()
    assert empty.part(0, 1) is empty


def test_a_ragged_field_is_found_by_its_name_and_no_other_field_is() -> None:
    message = mixed()
    assert message.column("rows") is message.rows
    for name in ("table", "rank", "part", "nothing"):
        with pytest.raises(HushrecError, match=rf"\AMixed has no ragged field {name}; see its kinds\(\)\Z"):
            message.column(name)


def test_messages_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        mixed().rank = of(1)  # type: ignore[misc]


def test_rows_are_those_of_the_ragged_fields() -> None:
    """Not those of the shared table, which has two, and not the six of both ragged fields together."""
    assert mixed().num_rows == 3
    assert mixed().lengths.tolist() == [2, 0, 1]
    assert (mixed().part(0, 2).num_rows, mixed().part(0, 2).lengths.tolist()) == (2, [2, 0])
    assert mixed().take(np.array([2, 0])).lengths.tolist() == [1, 2]
    assert Empty().num_rows == 0
    assert Empty().lengths.tolist() == []


def test_collect_keeps_the_order_of_parties() -> None:
    collect = Collect()
    forks = [collect.fork(), collect.fork()]
    for fork, numbers in ((0, of(6, 7)), (1, of(0, 1)), (0, of(2, 3)), (1, of(4, 5))):
        forks[fork].add(numbers, f"from {numbers[0]}")
    for fork in forks:
        collect.merge(fork)
    assert [message for _, message in collect.batches] == ["from 0", "from 2", "from 4", "from 6"]


def test_answer_tells_who_came() -> None:
    assert Answer(of(2, 5)).came(of(1, 2, 3, 5)).tolist() == [1, 3]
    assert Answer().came(of(1, 2)).tolist() == [1, 2]


def test_tallies_add_up_by_round_and_type() -> None:
    transcript = Transcript()
    transcript.record(Recorded(1, of(0, 1, 2), mixed()), 100)
    transcript.record(Recorded(1, of(3, 4, 5), mixed()), 50)
    transcript.record(Recorded(2, of(0), Empty(), of(4)), 7)
    assert transcript.tallies == {(1, Mixed): Tally(6, 6, 150), (2, Empty): Tally(1, 0, 7)}
    assert transcript.total(Mixed, Empty) == Tally(7, 6, 157)
    assert transcript.total() == Tally()
    assert transcript.sent_bytes() == {"server->client": 150, "client->denoiser": 7}
    assert transcript.recorded == []


def test_roles_see_what_they_sent_or_received() -> None:
    transcript = Transcript(keep_payloads=True)
    transcript.record(Recorded(1, of(0, 1, 2), mixed()), 1)
    transcript.record(Recorded(1, of(0), Empty(), of(1)), 1)
    seen = {role: [type(one.message) for one in transcript.seen_by(role)] for role in Role}
    assert seen[Role.SERVER] == seen[Role.ACTIVE_SERVER] == [Mixed]
    assert seen[Role.CLIENT] == [Mixed, Empty]
    assert seen[Role.DENOISER] == [Empty]
    assert seen[Role.OBSERVER] == []


def test_a_party_sees_its_own_slices() -> None:
    """Of what the server sends to clients 4, 5 and 6, client 5 sees its part; the server all."""
    transcript = Transcript(keep_payloads=True)
    transcript.record(Recorded(1, of(4, 5, 6), mixed()), 1)
    (seen,) = transcript.seen_by(Seat(Role.CLIENT, 6))
    assert (seen.numbers.tolist(), as_lists(seen.message.rows)) == ([6], [[3]])  # type: ignore[attr-defined]
    assert transcript.seen_by(Seat(Role.CLIENT, 9)) == []
    assert transcript.seen_by(Seat(Role.DENOISER, 5)) == []
    (several,) = transcript.seen_by(Seat(Role.CLIENT, 6), Seat(Role.CLIENT, 4))
    assert several.numbers.tolist() == [4, 6]
    for server in (Role.SERVER, Seat(Role.SERVER), Seat(Role.SERVER, 0)):
        (whole,) = transcript.seen_by(server)
        assert whole.numbers.tolist() == [4, 5, 6]


def mail() -> Transcript:
    """Clients 0, 1, 2 write to denoisers 7, 8, 7."""
    transcript = Transcript(keep_payloads=True)
    transcript.record(Recorded(1, of(0, 1, 2), Letters(as_ragged([[10], [11, 12], []])), of(7, 8, 7)), 1)
    return transcript


def told(view: View) -> list[tuple[list[int], list[int], list[int]]]:
    """Of each batch: writers, addressees, and what was said."""
    batches = []
    for one in view:
        assert isinstance(one.message, Letters)
        assert one.addressees is not None
        batches.append((one.numbers.tolist(), one.addressees.tolist(), one.message.words.values.tolist()))
    return batches


def test_mail_is_seen_by_who_wrote_it_and_who_gets_it() -> None:
    """The receiver does not learn who wrote."""
    transcript = mail()
    assert told(transcript.seen_by(Seat(Role.CLIENT, 1))) == [([1], [8], [11, 12])]
    assert told(transcript.seen_by(Seat(Role.DENOISER, 7))) == [([UNNAMED, UNNAMED], [7, 7], [10])]
    assert told(transcript.seen_by(Role.DENOISER)) == [([UNNAMED] * 3, [7, 8, 7], [10, 11, 12])]
    assert transcript.seen_by(Role.SERVER) == transcript.seen_by(Seat(Role.DENOISER, 9)) == []


def test_colluding_parties_see_together_what_each_saw_and_the_server_adds_who_wrote() -> None:
    transcript = mail()
    together = transcript.seen_by(Seat(Role.SERVER), Seat(Role.DENOISER, 7))
    assert told(together) == [([0, 2], [7, 7], [10])], "mail to 8 stays sealed"
    both = transcript.seen_by(Seat(Role.CLIENT, 0), Seat(Role.DENOISER, 7))
    assert told(both) == [([0, UNNAMED], [7, 7], [10])], "what client 0 wrote itself is known"
    two = transcript.seen_by(Seat(Role.DENOISER, 7), Seat(Role.DENOISER, 8))
    assert told(two) == [([UNNAMED] * 3, [7, 8, 7], [10, 11, 12])]


def test_one_writer_of_several_letters_is_named_for_each() -> None:
    transcript = Transcript(keep_payloads=True)
    transcript.record(Recorded(1, of(3), Letters(as_ragged([[10], [11]])), of(7, 8)), 1)
    assert told(transcript.seen_by(Seat(Role.CLIENT, 3))) == [([3, 3], [7, 8], [10, 11])]
    assert told(transcript.seen_by(Seat(Role.SERVER), Seat(Role.DENOISER, 8))) == [([3], [8], [11])]


def test_an_observer_sees_what_travels_in_a_cipher_of_its_own_and_nothing_else() -> None:
    transcript = mail()
    transcript.record(Recorded(1, of(0, 1), OwnCipher(as_ragged([[1], [2]])), of(5, 6)), 1)
    transcript.record(Recorded(1, of(4, 5, 6), mixed()), 1)
    (seen,) = transcript.seen_by(Seat(Role.OBSERVER))
    assert isinstance(seen.message, OwnCipher)
    assert seen.numbers.tolist() == [0, 1]
    assert seen.addressees is not None
    assert seen.addressees.tolist() == [5, 6]


def test_recording_from_threads_loses_nothing() -> None:
    """Threads take turns as often as Python lets them, so that without the lock counts would be lost."""
    transcript, interval = Transcript(keep_payloads=True), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def record(first: int) -> None:
        for number in range(first, first + 2000):
            transcript.record(Recorded(1, of(number), Empty()), number)

    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in threads.map(record, range(0, 8000, 2000)):
                pass
    finally:
        sys.setswitchinterval(interval)
    assert transcript.total(Empty) == Tally(8000, 0, sum(range(8000)))
    assert len(transcript.recorded) == 8000


def batch_of(held: list[list[int]]) -> Mixed:
    rows = as_ragged(held)
    more = Ragged(rows.starts, np.repeat(rows.values[:, None].astype(np.float32), 2, axis=1))
    return Mixed(np.ones((1, 2), np.float32), np.arange(len(held), dtype=np.int32) % 10, rows, more)


@given(held=slices.filter(len), data=st.data())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_parts_that_are_joined_are_the_whole(held: list[list[int]], data: st.DataObject) -> None:
    whole = batch_of(held)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(held) - 1)))) if len(held) > 1 else []
    bounds = [0, *cuts, len(held)]
    joined = Mixed.join([whole.part(first, last) for first, last in pairwise(bounds)])
    assert as_lists(joined.rows) == held
    assert joined.rank.tolist() == whole.rank.tolist()
    assert (joined.more.starts.tolist(), joined.more.values.tolist()) == (
        whole.more.starts.tolist(),
        whole.more.values.tolist(),
    )
    assert joined.table is whole.table or joined.table.tolist() == whole.table.tolist()
    for column in (joined.rows.values, joined.more.values, joined.rank):
        assert column.dtype in (np.int32, np.float32)


def test_messages_without_columns_are_joined_and_one_is_itself() -> None:
    one = batch_of([[1], [2, 3]])
    assert Mixed.join([one]) is one
    assert isinstance(Empty.join([Empty(), Empty()]), Empty)


def test_rows_of_one_party() -> None:
    only = Ragged.one(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert (len(only), only.starts.tolist()) == (1, [0, 2])
    assert Ragged.one(of()).lengths.tolist() == [0]


# --- States --------------------------------------------------------------------------------------------------


def _put_total(state: Any, array: np.ndarray) -> None:
    state.total = float(array[0])


@dataclass
class Rows:
    vectors: Any = kept(result=True)
    total: float = 0.0
    totals = packed(lambda state: np.array([state.total]), _put_total)


@dataclass
class MoreRows(Rows):
    total: float = 1.0


@dataclass
class OtherRows(Rows):
    totals = None  # type: ignore[assignment]


def test_packed_arrays_of_a_base_class_are_kept_and_restored() -> None:
    state = MoreRows(np.zeros((2, 3)), 4.0)
    assert list(kept_arrays(state)) == ["vectors", "totals"]
    assert list(result_arrays(state)) == ["vectors"]
    again = MoreRows(np.ones((2, 3)))
    restore(again, kept_arrays(state))
    assert (again.total, again.vectors.tolist()) == (4.0, state.vectors.tolist())
    assert list(kept_arrays(OtherRows(np.zeros((2, 3))))) == ["vectors"], "a subclass may do without one"


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1), (3, 3), (2, 3, 1)])
def test_an_array_of_another_shape_is_refused_not_repeated(shape: tuple[int, ...]) -> None:
    state = Rows(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"^vectors has another shape$"):
        restore(state, {"vectors": np.ones(shape), "totals": np.ones(1)})
    assert not state.vectors.any()


def test_a_packed_array_of_a_frozen_state_is_refused_in_one_line() -> None:
    @dataclass(frozen=True)
    class Frozen:
        weights: Any = kept(result=True)
        totals = packed(lambda state: state.weights.sum(keepdims=True), lambda state, array: None)

    state = Frozen(np.ones(2))
    with pytest.raises(HushrecError, match=r"\AFrozen.totals cannot be packed: .* make it a kept\(\) field\Z"):
        restored(state, kept_arrays(state))

"""The protocol: sums come out above the threshold, nothing comes out below it, and no secret serves twice.

Parties hold rows of numbers, and the server asks for their sum. The server is driven step by step, so that a test
can lose parties in any step, or be the server itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.masking import as_ragged
from hushrec.privacy.secure_sum.attempts import AskedOtherwiseError, TakesPart, remembering
from hushrec.privacy.secure_sum.letters import LetterBox
from hushrec.privacy.secure_sum.masks import Agreements, Streams, draw_secrets, public_key_of
from hushrec.privacy.secure_sum.messages import (
    MaskedNumbers,
    SendKeys,
    SendShares,
    Shares,
    Unmask,
    Unmasking,
    told_to_all,
)
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.parties import (
    PURPOSE,
    RefusedError,
    answering,
    send_keys,
    send_shares,
    unmask,
)
from hushrec.privacy.secure_sum.plan import plan_for
from hushrec.privacy.secure_sum.server import secure_sum
from hushrec.privacy.secure_sum.settings import SecureSums
from hushrec.privacy.secure_sum.shamir import combine
from hushrec.privacy.secure_sum.system import summed
from hushrec.protocol import (
    NO_ONE,
    Answer,
    Ask,
    Cohort,
    Message,
    Numbers,
    Ragged,
    Reply,
    Role,
    Sealed,
    ragged,
    shared,
)

REAL = SecureSums(secure_sums=True, secure_masks="real")


@dataclass(frozen=True)
class Give(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.CLIENT
    factor: NDArray[np.int64] = shared(np.int64, 0)


@dataclass(frozen=True)
class Given(Message):
    """Reveals: a party's numbers."""

    sender, receiver = Role.CLIENT, Role.SERVER
    words: Ragged = ragged(np.int64)


@dataclass
class Sum:
    """The fold of the plain sum."""

    total: NDArray[np.int64]

    def fork(self) -> "Sum":
        return Sum(np.zeros_like(self.total))

    def add(self, _numbers: Numbers, message: Given) -> None:
        self.total += message.words.values.reshape(-1, len(self.total)).sum(axis=0)

    def merge(self, other: "Sum") -> None:
        self.total += other.total

    def words(self) -> NDArray[np.int64]:
        return self.total

    def add_words(self, words: NDArray[np.int64]) -> None:
        self.total += words


@dataclass
class Holders:
    """Private state: a row of numbers for each party."""

    rows: NDArray[np.int64]


@dataclass
class Parties:
    """Parties behind their handlers; mail is delivered to whom it is addressed."""

    rows: NDArray[np.int64]
    config: SecureSums = REAL
    draws: Draws = field(default_factory=lambda: Draws(0))
    box: LetterBox = field(default_factory=LetterBox)
    round_number: int = 1
    sent: list[tuple[Numbers, Message]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.private: Any = remembering(Holders(self.rows), len(self.rows))
        empty = lambda _request, _config, _clients: Sum(np.zeros(self.rows.shape[1], np.int64))  # noqa: E731
        self.summed = summed(Given, empty, lambda _config: Size(1.0))
        self.handlers: dict[type[Message], Any] = {
            SendKeys: send_keys,
            SendShares: send_shares,
            Give: answering(self._give, self.summed),
            Unmask: unmask,
        }

    @staticmethod
    def _give(cohort: Cohort[Holders], request: Give, _config: Any, _draws: Draws) -> Reply:
        return Reply(Given(as_ragged(cohort.private.rows[cohort.rows] * request.factor)))

    def ask(self, numbers: list[int], request: Message, box: LetterBox | None = None) -> Reply:
        """What parties answer, all in one cohort."""
        to = np.array(numbers, np.int32)
        cohort = Cohort(
            to, to.astype(np.int64), self.private, self.round_number, {Shares: self.box if box is None else box}
        )
        reply: Reply = self.handlers[type(request)](cohort, request, self.config, self.draws)
        self.sent.append((to, reply.message))
        return reply

    def sum(self, lost: Mapping[type[Message], set[int]] | None = None) -> tuple[list[int], Answer]:
        """A secure sum over all, of whom some are lost when they are asked so."""
        everyone = np.arange(len(self.rows), dtype=np.int32)
        total = Sum(np.zeros(self.rows.shape[1], np.int64))
        ask = Ask(everyone, Give(np.array(1)), total)
        steps = secure_sum(ask, "test", self.summed, 1, self.config, self.draws)
        try:
            ask = next(steps)
            while True:
                away = (lost or {}).get(type(ask.request), set())
                is_lost = np.isin(ask.to, sorted(away))
                came = ask.to[~is_lost]
                if len(came):
                    reply = self.ask(came.tolist(), ask.request.take(np.flatnonzero(~is_lost)))
                    ask.replies.add(came, reply.message)
                    self.box = _mailed(reply.mail) if reply.mail else self.box
                ask = steps.send(Answer(ask.to[is_lost]))
        except StopIteration as end:
            return total.total.tolist(), end.value


def _mailed(mail: tuple[Sealed, ...]) -> LetterBox:
    box = LetterBox()
    for sealed in mail:
        assert isinstance(sealed.message, Shares)
        box.add(sealed.addressees, sealed.message)
    return box


def rows_for(num_parties: int, seed: int = 0) -> NDArray[np.int64]:
    generator = np.random.default_rng(seed)
    return generator.integers(-(2**63), 2**63 - 1, (num_parties, 4), np.int64, endpoint=True)


# --- What comes out ---


def test_three_clients_by_hand() -> None:
    """Each is a neighbour of both others. With own masks b and common masks m, the uploads are

    y_0 = x_0 + b_0 + m_01 + m_02,  y_1 = x_1 + b_1 - m_01 + m_12,  y_2 = x_2 + b_2 - m_02 - m_12,

    so their sum is x_0 + x_1 + x_2 + b_0 + b_1 + b_2, and two shares each give b_0, b_1 and b_2.
    """
    rows = np.array([[1, 10], [2, 20], [3, 30]], np.int64)
    parties = Parties(rows)
    found, answer = parties.sum()
    assert found == [6, 60]
    assert len(answer.lost) == 0
    secrets = [draw_secrets(Draws(0).key(PURPOSE), number, 0) for number in range(3)]

    def stream(key: bytes) -> NDArray[np.int64]:
        words = np.zeros(2, np.int64)
        Streams(2).add(words, key, 1)
        return words

    def common(one: int, other: int) -> NDArray[np.int64]:
        agreements = Agreements(secrets[one].private_key, told)
        return stream(agreements.mask_key(public_key_of(secrets[other].private_key)))

    told = told_to_all(Give(np.array(1)), 1, 3, NO_ONE)
    own = [stream(one.seed) for one in secrets]
    expected = [
        rows[0] + own[0] + common(0, 1) + common(0, 2),
        rows[1] + own[1] - common(0, 1) + common(1, 2),
        rows[2] + own[2] - common(0, 2) - common(1, 2),
    ]
    sent = [
        message.words.values.reshape(3, 2) for _, message in parties.sent if isinstance(message, MaskedNumbers)
    ]
    np.testing.assert_array_equal(sent[0], expected)


@pytest.mark.parametrize("what", ["request", "round", "items left out", "nothing"])
@pytest.mark.parametrize("others", [[0], [0, 1, 2], list(range(0, 20, 2))])
def test_a_server_that_tells_some_something_else_gets_noise(
    what: str, others: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the sum over all, nor one of each group: the masks between both do not cancel."""
    parties = Parties(np.ones((20, 4), np.int64))
    honest = parties.ask

    def lying(numbers: list[int], request: Message, box: LetterBox | None = None) -> Reply:
        if not isinstance(request, Give):
            return honest(numbers, request, box)
        groups = [[number for number in numbers if (number in others) is is_other] for is_other in (False, True)]
        replies = []
        for group, is_other in zip(groups, (False, True), strict=True):
            parties.round_number = 2 if is_other and what == "round" else 1
            parties.private.sum_left_out = np.full(3, is_other and what == "items left out")
            factor = np.array(0 if is_other and what == "request" else 1)
            replies.append(honest(group, Give(factor), box).message)
        return Reply(MaskedNumbers.join(replies).take(np.argsort(np.concatenate(groups))))

    parties.ask = lying  # type: ignore[method-assign]
    if what == "items left out":
        parties.summed = replace(parties.summed, is_of_items=True)
        parties.handlers[Give] = answering(parties._give, parties.summed)
        monkeypatch.setattr("hushrec.privacy.secure_sum.parties.without_items", lambda reply, _left_out: reply)
    found, _ = parties.sum()
    is_noise = min(abs(word) for word in found) > 2**40
    assert is_noise is (what != "nothing")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_sum_of_those_who_are_left_comes_out_whoever_is_lost_and_when(data: st.DataObject) -> None:
    num_parties, seed = data.draw(st.integers(5, 26)), data.draw(st.integers(0, 99))
    config = SecureSums(secure_sums=True, secure_masks="real", secure_dropouts=0.3, secure_corrupted=0.0)
    parties = Parties(rows_for(num_parties, seed), config, Draws(seed))
    most = int(0.3 * num_parties)
    lost = sorted(data.draw(st.sets(st.integers(0, num_parties - 1), max_size=most)))
    steps = {number: data.draw(st.sampled_from([SendShares, Give, Unmask])) for number in lost}
    by_step = {step: {number for number in lost if steps[number] is step} for step in (SendShares, Give, Unmask)}
    left = [number for number in range(num_parties) if steps.get(number, Unmask) is Unmask]
    found, answer = parties.sum(by_step)
    assert found == parties.rows[left].sum(axis=0).tolist()
    assert answer.lost.tolist() == sorted(set(range(num_parties)) - set(left))


@pytest.mark.parametrize("step", [SendKeys, SendShares, Give, Unmask])
def test_a_tenth_may_be_lost_in_any_step(step: type[Message]) -> None:
    parties = Parties(rows_for(100))
    lost = set(range(3, 100, 10))
    found, answer = parties.sum({step: lost})
    left = [number for number in range(100) if number not in lost or step is Unmask]
    assert found == parties.rows[left].sum(axis=0).tolist()
    assert set(answer.lost.tolist()) == (set() if step is Unmask else lost)


def test_nobody_there_is_no_sum() -> None:
    found, answer = Parties(rows_for(5)).sum({SendKeys: set(range(5))})
    assert found == [0, 0, 0, 0]
    assert answer.lost.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("step", [SendShares, Give])
def test_below_the_stated_number_nothing_is_unmasked(step: type[Message]) -> None:
    """Of 20, two may be lost; three are."""
    parties = Parties(rows_for(20))
    with pytest.raises(HushrecError, match=r"\A17 of 20 have (shared|survived) and 18 are needed, so nothing.*\Z"):
        parties.sum({step: {1, 5, 9}})
    assert not any(isinstance(message, Unmasking) for _, message in parties.sent)


def test_too_few_shares_unmask_nothing() -> None:
    parties = Parties(rows_for(20))
    with pytest.raises(HushrecError, match=r"\A\d+ neighbours of participant \d+ sent shares and .*nothing.*\Z"):
        parties.sum({Unmask: set(range(12))})


def test_what_is_uploaded_is_uniform_whatever_the_numbers() -> None:
    """Bits of the uploads of zeros: 256,000 fair coins, within five deviations (one false alarm in a million)."""
    parties = Parties(np.zeros((4, 1000), np.int64))
    parties.sum()
    sent = next(message for _, message in parties.sent if isinstance(message, MaskedNumbers)).words.values
    num_ones = int(np.unpackbits(sent.view(np.uint8)).sum())
    assert abs(num_ones - 128_000) < 5 * 253


# --- A server that does not follow the protocol ---


def masked_parties(num_parties: int = 10) -> tuple[Parties, list[list[int]]]:
    """Parties that have masked their numbers, and their neighbours: everybody else."""
    parties = Parties(
        rows_for(num_parties), SecureSums(secure_sums=True, secure_masks="real", secure_failure=1e-200)
    )
    everyone = list(range(num_parties))
    keys: Any = parties.ask(everyone, SendKeys()).message
    degree = plan_for(num_parties, parties.config).degree
    neighbours = [[other for other in everyone if other != number] for number in everyone]
    assert degree in (num_parties - 1, 4)
    if degree == 4:
        neighbours = [sorted((number + step) % num_parties for step in (-2, -1, 1, 2)) for number in everyone]
    places = np.array(neighbours, np.int32)
    starts = np.arange(num_parties + 1, dtype=np.int64) * degree
    request = SendShares(
        np.array(num_parties), Ragged(starts, places.ravel()), Ragged(starts, keys.key.values[places.ravel()])
    )
    parties.box = _mailed(parties.ask(everyone, request).mail)
    parties.ask(everyone, Give(np.array(1)))
    return parties, neighbours


def test_two_sets_of_survivors_get_both_secrets_of_nobody() -> None:
    """The server tells some neighbours of party 0 that it was lost, the others that it was not, in all ways."""
    survivors = np.arange(10, dtype=np.int32)
    neighbours = masked_parties()[1][0]
    for num_told in range(len(neighbours) + 1):
        parties, _ = masked_parties()
        threshold = plan_for(10, parties.config).threshold
        shares: dict[bool, list[tuple[int, Any]]] = {False: [], True: []}
        for place, number in enumerate(neighbours):
            told = survivors[1:] if place < num_told else survivors
            reply: Any = parties.ask([number], Unmask(told)).message
            about = reply.neighbours.values.tolist().index(0)
            shares[bool(reply.is_key.values[about])].append((place + 1, reply.shares.values[about]))
        assert len(shares[True]) == num_told
        secrets = draw_secrets(Draws(0).key(PURPOSE), 0, 0)
        opened = []
        for is_key, secret in ((True, secrets.private_key), (False, secrets.seed)):
            taken = shares[is_key][:threshold]
            if len(taken) == threshold:
                places, rows = np.array([[one for one, _ in taken]]), np.array([[one for _, one in taken]])
                opened.append(combine(places, rows).tobytes() == secret)
        assert opened.count(True) <= 1
        assert num_told not in (0, len(neighbours)) or opened == [True]


def test_a_party_answers_once_with_one_set() -> None:
    parties, _ = masked_parties()
    survivors = np.arange(10, dtype=np.int32)
    first: Any = parties.ask([3], Unmask(survivors)).message
    again: Any = parties.ask([3], Unmask(survivors)).message
    np.testing.assert_array_equal(again.shares.values, first.shares.values)
    assert not first.is_key.values.any()
    with pytest.raises(AskedOtherwiseError, match=r"\Aa participant is asked to unmask twice for one sum; .*\Z"):
        parties.ask([3], Unmask(survivors[1:]))


def test_a_set_too_small_is_not_answered() -> None:
    """Only party 3 is said to have survived, or too few of a party's neighbours."""
    parties, _ = masked_parties()
    for survivors in ([3], [3, 4, 5, 6, 7], [0, 1, 3, 4, 5, 6, 7, 8]):
        with pytest.raises(RefusedError, match="too few to unmask"):
            parties.ask([3], Unmask(np.array(survivors, np.int32)))
    with pytest.raises(RefusedError, match="without the participant that is asked"):
        parties.ask([3], Unmask(np.array([0, 1, 2, 4, 5, 6, 7, 8, 9], np.int32)))


def test_nothing_is_masked_twice_with_the_same_masks() -> None:
    """Another request, or other neighbours: the difference of two such uploads would tell numbers."""
    parties, _ = masked_parties()
    parties.ask([3], Give(np.array(1)))
    with pytest.raises(AskedOtherwiseError, match="asked to mask twice"):
        parties.ask([3], Give(np.array(2)))
    fewer = LetterBox()
    letters = parties.box.to(np.array([3], np.int32)).shares
    fewer.add(np.full(3, 3, np.int32), letters.part(0, 3))
    with pytest.raises(AskedOtherwiseError, match="asked to mask twice"):
        parties.ask([3], Give(np.array(1)), fewer)


def test_a_round_that_begins_again_has_new_secrets_and_takes_no_old_letters() -> None:
    parties, _ = masked_parties()
    old_box, private = parties.box, parties.private
    assert _attempts(private) == [0] * 10
    keys = [parties.ask([3], SendKeys()).message for _ in range(2)]
    assert _attempts(private)[3] == 1, "asked again before anything was shared, it is the same attempt"
    np.testing.assert_array_equal(keys[0].column("key").values, keys[1].column("key").values)
    with pytest.raises(RefusedError, match="shares are of another sum"):
        parties.ask([3], Unmask(np.arange(10, dtype=np.int32)), old_box)
    found, _ = parties.sum()
    assert found == parties.rows.sum(axis=0).tolist()


def test_steps_come_in_order() -> None:
    parties, _ = masked_parties()
    fresh = Parties(parties.rows, parties.config)
    with pytest.raises(AskedOtherwiseError, match="asked to mask before it was asked to share"):
        fresh.ask([3], Give(np.array(1)), parties.box)


def _attempts(private: TakesPart) -> list[int]:
    attempts: list[int] = private.sum_attempts.tolist()
    return attempts

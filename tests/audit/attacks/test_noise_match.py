from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.audit.attacks.noise_match import ATTACK, is_noise, judge, match
from hushrec.audit.driver import audit
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import clients_of, items_of
from hushrec.data import synthetic
from hushrec.protocol import Message, Numbers, Ragged, Recorded, Role, Seat, Transcript, each, ragged
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: rows of items."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.int64, 2)


@dataclass(frozen=True)
class Shares(Message):
    """Reveals: rows of items, and more columns than there were."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.int64, 2)
    counts: Ragged = ragged(np.int64)
    number: Numbers = each(np.int32)


def rows(*values: tuple[int, int]) -> tuple[Ragged, Ragged]:
    """Items of one client with a number each."""
    items, numbers = zip(*values, strict=True)
    return Ragged.one(np.array(items, np.int32)), Ragged.one(np.array(numbers, np.int64)[:, None])


def upload(client: int, *values: tuple[int, int]) -> Recorded:
    return Recorded(1, np.array([client], np.int32), Rows(*rows(*values)))


def mail(client: int, to: int, *values: tuple[int, int]) -> Recorded:
    items, numbers = rows(*values)
    counts = Ragged(items.starts, np.ones(len(values), np.int64))
    message = Shares(items, numbers, counts, np.zeros(1, np.int32))
    return Recorded(1, np.array([client], np.int32), message, np.array([to], np.int32))


def left(sent: list[Recorded], *seats: Seat) -> dict[int, list[int]]:
    transcript = Transcript(keep_payloads=True)
    for one in sent:
        transcript.record(one, 0)
    matched = match(transcript.seen_by(*seats))
    pairs = matched.pairs[matched.is_left]
    return {
        int(client): items_of(pairs[clients_of(pairs) == client]).tolist()
        for client in np.unique(clients_of(pairs))
    }


SERVER, FIRST, SECOND = Seat(Role.SERVER), Seat(Role.DENOISER, 8), Seat(Role.DENOISER, 9)


def test_what_is_no_noise_is_left() -> None:
    """Client 0 lists 1, 2, 3, of which 2 is virtual; client 1 is told of if its denoiser colludes."""
    sent = [
        upload(0, (1, 10), (2, 20), (3, 30)),
        upload(1, (1, 5), (2, 6)),
        mail(0, 8, (2, 20)),
        mail(1, 9, (1, 5)),
    ]
    assert left(sent, SERVER, FIRST) == {0: [1, 3]}
    assert left(sent, SERVER, FIRST, SECOND) == {0: [1, 3], 1: [2]}


def test_all_shares_tell_and_fewer_do_not() -> None:
    """Gradients 10 (rated) and 20 (virtual), masks 100 and -7: uploads 110 and 13, shares sum to 100 and -7 + 20.

    Sums wrap: the second share is near the end of the range.
    """
    most = 2**63 - 1
    shares = (most, most), (100 - most, 13 - most)
    sent = [upload(0, (1, 110), (2, 13))]
    sent += [mail(0, to, (1, one), (2, other)) for to, (one, other) in zip((8, 9), shares, strict=True)]
    assert left(sent, SERVER, FIRST, SECOND) == {0: [1]}
    assert left(sent, SERVER, FIRST) == {0: [1, 2]}
    assert left(sent, SERVER, SECOND) == {0: [1, 2]}


@pytest.mark.parametrize(("colluding", "is_read"), [(1, False), (2, True)])
def test_shares_that_come_as_seeds_tell_if_all_are_there(colluding: int, is_read: bool) -> None:
    """FedRec++ with two shares at two denoisers, trained: one of them sees lists, both see what is virtual."""
    data = synthetic(24, 30, 288)
    system = SYSTEMS["fedrec++"]
    values = {"rho": 1, "denoisers": 2, "shares": 2, "num_rounds": 2, "num_factors": 3}
    job = Job(system, system.configure(values), 0, prepared(system, data))
    roles = (Role.SERVER, *(Role.DENOISER,) * colluding)
    found = audit(job, RuntimeOptions(threads=1), lambda _progress, _scores: None, [ATTACK], roles)
    [finding] = found.findings
    assert finding.num_victims == 24
    if is_read:
        assert finding.score == 1.0
    else:
        assert finding.score == pytest.approx(finding.chance)


def test_all_that_is_listed_is_at_chance(owning: Callable[..., Truth]) -> None:
    truth = owning([[1]], 4)
    sent = [upload(0, (1, 110), (2, 13)), mail(0, 8, (1, 7), (2, 8))]
    outcome = judge(match(sent), truth)
    assert outcome.scores.tolist() == outcome.chances.tolist() == [2 / 3]
    assert judge(match([sent[0]]), truth).victims.tolist() == []


def test_it_reads_mail_to_denoisers() -> None:
    assert [is_noise(kind) for kind in (Shares, Rows)] == [True, False]
    assert ATTACK.role == "server+denoiser"

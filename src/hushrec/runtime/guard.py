"""A guard: what a node does not answer, whoever asks, since no honest server would ask for it.

A handler answers any request that fits its types. A server that does not keep to the protocol can use that: ask
for a round again with another V, for rounds that were not agreed on, for a client's help as a denoiser. So a node
asks its guard before it answers. The guard knows what was agreed on before the first round (`Limits`), and
remembers of the round that runs what was asked (`Memory`, which is on disk before an answer leaves):

- rounds ascend, from the first to the last that was agreed on;
- what all parties are told in a round (V) is the same in all requests of the round, of whatever type;
- what a party is told is the same whenever it is asked again. An honest round that begins again, without those who
  were lost, asks the others exactly what it asked before;
- who is asked as a denoiser, and to whom noise goes, is one of those who were appointed;
- a denoiser sums up noise of so many clients at least. If it is asked twice in a round, the clients of one sum are
  among those of the other, and as many at least are missing: else the difference would show a few. A denoiser that
  declines so is named, and the round goes on without it and its clients;
- a sum is of no more parties than there are in the run, whoever says so: each adds the less noise the more it is
  told of;
- letters of an ask are passed on in one batch, each once: who gets them one by one, or one of them twice, learns
  who wrote to whom. A relay remembers `MOST_RELAYED` asks of a round, and passes on no letters of others;
- vectors are no longer than training makes them.

What was admitted is remembered also if the answer was an error, and on disk before that leaves: else another V
could be tried until one is answered.

Guarantee: of one round and one V a client gives one answer. A refusal that depends on what clients have is an
answer, too: the node ends the run with it (`deploy.node_run`).

Not protected: rounds that are begun and never count, within the number that was agreed on; requests whose contents
may change within a round (`Message.varies`): where a model moves from group to group of clients, a round that
begins again after a loss asks others with another one, so a client answers `MOST_CONTENTS` of them in a round; and
requests to owners, partners and the side of users, which have steps of their own.

How long vectors may be: a client refuses to upload a number above 2048 (`kernels.rows.FIXED_LIMIT`), and so ends a
training that diverges. Where a client's vector is as long as an item's, x, its error is about x^2 and its row x^3:
beyond x = 12.7 updates are refused, and so the training ends by itself. Measured on ML-100K over all rounds, the
longest vectors of an honest training are 10.5 (SDCF denoised), 6.8 (FedRec-BPR), 4.1 (SDCF), 2.7 (FedRec). The
limit is 32 for ratings up to 5. As a rating is a product of two vectors, it grows with the root of the highest
rating.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import ModelDivergedError, PublicError
from hushrec.protocol import Message, Numbers, Ragged, Role
from hushrec.runtime.wire import code_of

LONGEST = 32.0  # of vectors, where ratings go up to 5
MOST_PER_RATED = 20  # items of a catalogue for each that somebody of a node rated
_FEW_RATED = 100  # of which a node cannot say how many others there are
_USUAL_RATING = 5.0
MOST_CONTENTS = 12  # of a request that varies, in a round: twice as many as a round is begun before a run gives up
MOST_RELAYED = 4096  # asks of a round: a sum of FCF for each few clients, in a round that begins again and again
_DIGEST_BYTES = 12

_GUARDED = (Role.CLIENT, Role.DENOISER)
_PARTIES = "num_parties"  # a column: of a sum


class GuardError(PublicError):
    """What an honest server would not have asked."""


class Declined(GuardError):
    """What some parties cannot answer in this round, though it is nobody's fault; the others can go on."""

    def __init__(self, numbers: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.numbers = list(numbers)


class TooLongError(ModelDivergedError):
    """Vectors longer than those of a training that learns something: no honest server goes on with them."""


def longest_vector(rating_range: tuple[float, float] | None) -> float:
    """How long a vector of items may be, with ratings of this range.

    >>> longest_vector((1, 5)), longest_vector(None), longest_vector((0, 20))
    (32.0, 32.0, 64.0)
    """
    highest = max(map(abs, rating_range)) if rating_range else 0.0
    return LONGEST * math.sqrt(max(highest / _USUAL_RATING, 1.0))


def check_catalogue(num_items: int, num_rated: int) -> None:
    """Refuse a catalogue most of which must be invented, as far as who rated so many of its items can tell."""
    if num_rated >= _FEW_RATED and num_items > MOST_PER_RATED * num_rated:
        raise GuardError(
            f"a catalogue of more than {MOST_PER_RATED} times as many items as are rated here, most may be "
            "invented; the node's owner can say with --items which items there are"
        )


@dataclass(frozen=True)
class Limits:
    """What was agreed on before the first round."""

    num_rounds: int
    appointed: Mapping[str, Numbers] = field(default_factory=dict)  # who may be asked in a role; others: everybody
    longest: float = LONGEST
    min_writers: int = 2  # clients whose noise a denoiser sums up, at least
    num_clients: int | None = None  # that are on nodes of the run; None: not known


class Memory(msgspec.Struct, frozen=True):
    """What was asked in the round that runs. Digests of what was told: nothing of a client's."""

    round_number: int = 0
    shared: dict[str, bytes] = {}  # by column
    own: dict[int, dict[int, bytes]] = {}  # by type of request and party
    summed: dict[int, list[list[bytes]]] = {}  # by type of request times party: clients of each sum, as digests
    varied: dict[int, dict[int, list[bytes]]] = {}  # as `own`, of what may vary
    relayed: dict[str, bytes] = {}  # by ask and type of letter: the batch that was passed on


@dataclass(frozen=True)
class Slices:
    """What came for one addressee: a digest of each client's part, in any order."""

    digests: tuple[bytes, ...] = ()

    def with_message(self, message: Message, places: NDArray[np.int64]) -> "Slices":
        """These, and the parts of a letter at these places.

        Of tables the ends are enough: their rows are digested by what they are of, and who can make up others with
        the same ends has written them. To read all of them takes a tenth of a round at the size of ML-1M.
        """
        return Slices((*self.digests, *(_digest_of_party(message, place, True) for place in places.tolist())))


class Guard:
    """Answers for one run on one node: what is asked now, beside what was asked before."""

    def __init__(self, limits: Limits, memory: Memory | None = None) -> None:
        self.limits, self.memory = limits, memory or Memory()

    def admit(self, round_number: int, request: Message, numbers: Numbers) -> Memory:
        """Refuse a request that is none of an honest server; what to remember if it is answered."""
        before = self._of_round(round_number)
        kind = type(request)
        self._check_appointed(kind.receiver, numbers, "asked")
        if kind.receiver not in _GUARDED:
            return self.memory
        self._check_lengths(request)
        self.check_counts(request)
        if kind.varies == "freely":
            return before
        return (_remembered if kind.varies == "never" else _with_contents)(before, request, numbers)

    def _of_round(self, round_number: int) -> Memory:
        """What was asked before in a round that may be asked for."""
        if not 1 <= round_number <= self.limits.num_rounds:
            raise GuardError(
                f"asked for round {round_number} of {self.limits.num_rounds}; order a run of as many rounds"
            )
        if round_number < self.memory.round_number:
            raise GuardError(f"asked for round {round_number} after round {self.memory.round_number}")
        return self.memory if round_number == self.memory.round_number else Memory(round_number)

    def admit_relay(self, round_number: int, letters: Sequence[tuple[str, bytes]]) -> Memory:
        """Refuse to pass on letters of an ask in another batch than before, or one of them twice; the same.

        Of each letter: of which ask it is, and itself.
        """
        memory = self._of_round(round_number)
        if len(set(letters)) < len(letters):
            raise GuardError("asked to pass on a letter twice, which would show who wrote it")
        relayed = dict(memory.relayed)
        for ask in {ask for ask, _ in letters}:
            batch = _digest(
                [np.frombuffer(one, np.uint8) for one in sorted(one for of, one in letters if of == ask)]
            )
            if relayed.setdefault(ask, batch) != batch:
                raise GuardError(
                    "asked to pass on letters of one ask in two batches, which would show who wrote which"
                )
        if len(relayed) > MOST_RELAYED:
            raise GuardError(f"asked to pass on letters of more than {MOST_RELAYED:,} asks in a round")
        return msgspec.structs.replace(memory, relayed=relayed)

    def admit_mail(self, memory: Memory, request: Message, numbers: Numbers, mail: Mapping[int, Slices]) -> Memory:
        """Refuse to sum up what came for these denoisers if that would tell of few clients; the same."""
        if type(request).receiver != Role.DENOISER:
            return memory
        summed, declined, least = dict(memory.summed), dict[int, str](), self.limits.min_writers
        for number in numbers.tolist():
            digests, key = mail.get(number, Slices()).digests, code_of(type(request)) << 32 | number
            if len(digests) < least:
                count = len(digests)
                declined[number] = f"a denoiser got the noise of {count} clients, and answers from {least} on"
            elif _shows_few(summed.get(key, []), Counter(digests), least):
                declined[number] = (
                    f"two sums of a denoiser in a round would differ by fewer than {least} clients, and show them"
                )
            elif (told := sorted(digests)) not in summed.get(key, []):
                summed[key] = [*summed.get(key, []), told]
        if declined:
            raise Declined(list(declined), next(iter(declined.values())))
        return msgspec.structs.replace(memory, summed=summed)

    def check_mail_out(self, message: Message, addressees: Numbers) -> None:
        """Refuse to write to somebody who was not appointed."""
        self._check_appointed(type(message).receiver, addressees[addressees >= 0], "named")

    def _check_appointed(self, role: Role, numbers: Numbers, how: str) -> None:
        appointed = self.limits.appointed.get(role.value)
        if appointed is not None and not np.isin(numbers, appointed).all():
            raise GuardError(f"a client was {how} as a {role.value} who was not appointed at the start of the run")

    def check_counts(self, told: Message) -> None:
        """Refuse a request or a letter that says a sum is over more than there are."""
        most = self.limits.num_clients
        for column in told.kinds():
            if most is not None and column.name == _PARTIES and np.max(getattr(told, _PARTIES), initial=0) > most:
                raise GuardError(f"told of a sum over more clients than the {most} of this run")

    def _check_lengths(self, request: Message) -> None:
        for column in request.kinds():
            if column.dtype.kind != "f":
                continue
            told = getattr(request, column.name)
            values = told.values if isinstance(told, Ragged) else told
            longest = _longest(values)
            if not longest <= self.limits.longest:
                raise TooLongError(f"{column.name} is longer than {self.limits.longest:g}")


def _longest(values: NDArray[Any]) -> float:
    """The largest length of a row, or size of a number."""
    if not values.size:
        return 0.0
    if values.ndim < 2:
        return float(np.abs(values).max())
    rows = values.reshape(len(values), -1)
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max()))


def _remembered(memory: Memory, request: Message, numbers: Numbers) -> Memory:
    """With what this request tells; refused if something else was told before."""
    shared = dict(memory.shared)
    for name in _shared_columns(request):
        digest = _digest([np.ascontiguousarray(getattr(request, name))])
        if shared.setdefault(name, digest) != digest:
            raise GuardError(f"asked again in round {memory.round_number} with another {name}")
    code, own = code_of(type(request)), dict(memory.own)
    known = dict(own.get(code, {}))
    for place, number in enumerate(numbers.tolist()):
        digest = _digest_of_party(request, place)
        if known.setdefault(number, digest) != digest:
            what = type(request).__name__
            raise GuardError(f"a client was asked again in round {memory.round_number} with another {what}")
    own[code] = known
    return msgspec.structs.replace(memory, shared=shared, own=own)


def _with_contents(memory: Memory, request: Message, numbers: Numbers) -> Memory:
    """With what this request tells, where it may be something else than before; refused if that is too often."""
    told = [_digest([np.ascontiguousarray(getattr(request, name))]) for name in _shared_columns(request)]
    code, varied = code_of(type(request)), dict(memory.varied)
    known = dict(varied.get(code, {}))
    for place, number in enumerate(numbers.tolist()):
        digest, before = b"".join([*told, _digest_of_party(request, place)]), known.get(number, [])
        if digest in before:
            continue
        if len(before) == MOST_CONTENTS:
            what = type(request).__name__
            raise GuardError(
                f"a client was asked in round {memory.round_number} with {MOST_CONTENTS} other {what}"
            )
        known[number] = [*before, digest]
    varied[code] = known
    return msgspec.structs.replace(memory, varied=varied)


def _shared_columns(request: Message) -> list[str]:
    return [column.name for column in request.kinds() if column.layout == "shared"]


def _shows_few(sums: Sequence[Sequence[bytes]], here: Counter[bytes], least: int) -> bool:
    """Whether a further sum of a denoiser would tell of few clients by one before it.

    Both are nested and differ by so many, or are the same.
    """
    for other in map(Counter, sums):
        missing, added = (other - here).total(), (here - other).total()
        if (missing and added) or 0 < missing + added < least:
            return True
    return False


def _digest_of_party(message: Message, place: int, is_of_ends: bool = False) -> bytes:
    """Of all that concerns one party, but for what all are told; of tables perhaps the ends alone."""
    columns: list[NDArray[Any]] = []
    for column in message.kinds():
        told = getattr(message, column.name)
        if isinstance(told, Ragged):
            own = told.values[told.starts[place] : told.starts[place + 1]]
            columns.append(own[:: len(own) - 1] if is_of_ends and own.ndim > 1 and len(own) > 2 else own)
        elif column.layout == "each":
            columns.append(told[place : place + 1])
    return _digest(columns)


def _digest(columns: Sequence[NDArray[Any]]) -> bytes:
    found = blake2b(digest_size=_DIGEST_BYTES)
    for column in columns:
        found.update(repr(column.shape).encode())
        found.update(np.ascontiguousarray(column).tobytes())
    return found.digest()

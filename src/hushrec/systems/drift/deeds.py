"""Deeds: what owners sign about their keys and items, and which table the users' side takes. Used by `drift`.

An owner signs (Ed25519) which items it holds, the key under which it wants to hear of them, and to whom it says
so. The orchestrator carries the deed, sealed, and makes the table of who holds what; it can sign for nobody. The
users' side keeps a book of who signed for what, and takes a table only if
1. each owner in it has signed for exactly the items that the table gives it, to this users' side;
2. an owner that is in the book has signed with the same key as before;
3. what an owner claims beyond its first deed was held by nobody else in the book, and so is all that an owner
   claims who was not there at the start. So who comes later, or takes more items in, gets those that are new or
   were given up, never those of others. `Book.agree` makes exceptions, for who decides about owners where the
   users' side is (live learning).
On nodes, owners pledge a digest of their signing key and their items before the first round, in the charter that
all nodes sign (`deploy/charter.py`): then only the deed that an owner has pledged is taken, the first one, too.
An owner that is not in a table stays in the book, with its items. It gives some up by a deed without them.

Guarantee: an owner gets interactions with those items alone that it signed for in its first deed, or that nobody
else held since; nobody else gets any. Ed25519, about 128 bits.
Not protected: first deeds. Several owners may hold an item, and nobody can say that one of them does not. An
owner that claims everything from the start gets everything; `told.py` tells people how much one owner shares.
Whose a signing key is the pledge says; where there is none, letters have to come from those whom they name.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.protocol import Numbers

SIGNING_KEY_BYTES, SIGNATURE_BYTES = 32, 64
_CONTEXT = b"hushrec drift deed v1\0"
_PLEDGE = b"hushrec drift pledge v1\0"
_PARTIES = struct.Struct("<II")


@dataclass(frozen=True)
class Deed:
    """What an owner signed; the items are those that a table gives it."""

    key: bytes  # of interactions; empty if they are in the clear
    signing_key: bytes  # public
    signature: bytes


def sign(signing_seed: bytes, owner: int, users_side: int, key: bytes, items: Numbers) -> Deed:
    """An owner's deed; items are ascending."""
    signer = Ed25519PrivateKey.from_private_bytes(signing_seed)
    signature = signer.sign(_content(owner, users_side, key, items))
    return Deed(key, signer.public_key().public_bytes_raw(), signature)


def pledge_of(signing_key: bytes, items: Numbers) -> bytes:
    """What an owner is bound to: a digest, of which nobody can guess the items who has not the key."""
    return sha256(_PLEDGE + signing_key + _digest_of_items(items)).digest()


def public_key_of(signing_seed: bytes) -> bytes:
    """The key that deeds are checked with."""
    return Ed25519PrivateKey.from_private_bytes(signing_seed).public_key().public_bytes_raw()


def _digest_of_items(items: Numbers) -> bytes:
    return sha256(np.ascontiguousarray(items, "<i4").tobytes()).digest()


def _content(owner: int, users_side: int, key: bytes, items: Numbers) -> bytes:
    """What is signed; of the items and the key only digests, all parts of one length."""
    return _CONTEXT + _PARTIES.pack(owner, users_side) + sha256(key).digest() + _digest_of_items(items)


def _check_signed(deed: Deed, owner: int, users_side: int, items: Numbers) -> None:
    try:
        signer = Ed25519PublicKey.from_public_bytes(deed.signing_key)
        signer.verify(deed.signature, _content(owner, users_side, deed.key, items))
    except (InvalidSignature, ValueError):
        raise PublicError(
            f"owner {owner} has not signed for the items that the table gives it; refuse the table"
        ) from None


@dataclass(frozen=True)
class Entry:
    """An owner in the book."""

    deed: Deed
    items: Numbers  # ascending


@dataclass
class Book:
    """Who signed for what, on the users' side; owners by number."""

    entries: dict[int, Entry] = field(default_factory=dict)
    num_at_start: int = -1  # owners that there were at the first table; -1: none came yet
    agreed: dict[int, Numbers] = field(default_factory=dict)  # claims that may be new, see `agree`
    pledged: Mapping[int, bytes] | None = None  # what each owner is bound to; None: nobody is

    def agree(self, owner: int, items: Numbers) -> None:
        """Let an owner have these items, whoever holds them, once it signs for them."""
        self.agreed[owner] = np.union1d(self.agreed.get(owner, np.empty(0, np.int32)), items).astype(np.int32)

    def admit(
        self, starts: NDArray[np.int64], owners: Numbers, deeds: Mapping[int, Deed], users_side: int
    ) -> None:
        """Take a table with what owners signed, or refuse it as a whole."""
        if self.num_at_start < 0:
            self.num_at_start = users_side  # owners have the numbers below its own
        items = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        order = np.argsort(owners, kind="stable")
        numbers, firsts = np.unique(owners[order], return_index=True)
        held = dict(zip(numbers.tolist(), np.split(items[order], firsts[1:]), strict=True))
        new = {}
        for owner, claimed in held.items():
            if owner not in deeds:
                raise PublicError(f"the deed of owner {owner} has not come; refuse the table")
            before = self.entries.get(owner)
            if before is None or before.deed != deeds[owner] or not np.array_equal(before.items, claimed):
                _check_signed(deeds[owner], owner, users_side, claimed)
                self._check_entry(owner, deeds[owner], claimed)
                new[owner] = Entry(deeds[owner], claimed)
        self.entries |= new
        self.agreed.clear()

    def _check_entry(self, owner: int, deed: Deed, claimed: Numbers) -> None:
        """Refuse what was not pledged, another signing key than before, and what others held before this table."""
        if self.pledged is not None and pledge_of(deed.signing_key, claimed) != self.pledged.get(owner):
            raise PublicError(
                f"owner {owner} claims other items or signs with another key than it pledged; refuse the table"
            )
        before = self.entries.get(owner)
        if before is None and owner < self.num_at_start:
            return
        if before is not None and before.deed.signing_key != deed.signing_key:
            raise PublicError(f"owner {owner} signs with another key than at the start; refuse the table")
        more = np.setdiff1d(claimed, self.agreed.get(owner, np.empty(0, np.int32)))
        if before is not None:
            more = np.setdiff1d(more, before.items)
        for other, entry in self.entries.items():
            if other != owner and np.isin(more, entry.items).any():
                raise PublicError(f"owner {owner} claims items that owner {other} held before; refuse the table")

    def keys(self) -> dict[int, bytes]:
        """The keys of interactions, by owner."""
        return {owner: entry.deed.key for owner, entry in self.entries.items()}

    def most_shared(self) -> tuple[int, int]:
        """The most items that one owner shares with others, and how many it holds."""
        holders = np.concatenate([np.empty(0, np.int32), *(entry.items for entry in self.entries.values())])
        is_shared = np.bincount(holders) > 1
        shares = [(int(is_shared[entry.items].sum()), len(entry.items)) for entry in self.entries.values()]
        return max(shares, default=(0, 0))

    # --- In checkpoints ---

    def packed(self) -> NDArray[np.int64]:
        """Owners at the start; then of each entry its owner, length of the key, number of items, deed, items."""
        parts = [np.array([self.num_at_start], np.int64)]
        for owner, entry in self.entries.items():
            raw = entry.deed.key + entry.deed.signing_key + entry.deed.signature
            head = np.array([owner, len(entry.deed.key), len(entry.items)], np.int64)
            parts += [head, np.frombuffer(raw, np.uint8).astype(np.int64), entry.items.astype(np.int64)]
        return np.concatenate(parts)

    @classmethod
    def unpacked(cls, numbers: NDArray[np.int64]) -> "Book":
        """From what `packed` gave."""
        book, place = cls(num_at_start=int(numbers[0]) if len(numbers) else -1), 1
        while place < len(numbers):
            owner, key_bytes, num_items = numbers[place : place + 3].tolist()
            cuts = np.cumsum([3, key_bytes, SIGNING_KEY_BYTES, SIGNATURE_BYTES, num_items])
            _, key, signing_key, signature, items, _ = np.split(numbers[place:], cuts)
            deed = Deed(*(part.astype(np.uint8).tobytes() for part in (key, signing_key, signature)))
            book.entries[owner] = Entry(deed, items.astype(np.int32))
            place += int(cuts[-1])
        return book

"""Which users partners have in common: private set intersection by commutative blinding, or a keyed hash.

Both turn ids into tokens of 32 bytes; partners number the tokens that at least two of them hold.

Private set intersection. An id is hashed to a point of Curve25519, and each partner multiplies points by its own
secret (X25519, RFC 7748). The order of multiplying does not matter: when each list has gone around the ring of
partners, and so has been blinded by all, equal ids have equal tokens and nobody can compute tokens alone.
Guarantee: a partner learns the sizes of the lists, which of its own users which others have, and of users that it
does not have itself no more than below. To test another id takes a run with the others. For partners that are
curious but follow the protocol; computational (decisional Diffie-Hellman on Curve25519, hash as random oracle).

Keyed hash. Some fifty times faster; partners agree on a key.
Guarantee: whoever lacks the key learns sizes and which tokens are shared, but no ids. Whoever has it, so each
partner, can test any id against the others' lists offline, at any time: where ids can be guessed (numbers, e-mail
addresses, phone numbers), a partner can read the others' whole lists.

Not protected, in both:
- a partner can lie about its list: it can add ids only to learn whether the others have them, or leave some out;
- a partner that departs from the protocol (swaps lists, blinds with several secrets, sends points instead of
  hashes) is not noticed, but for points of low order; this is not secure against malicious partners;
- three or more partners see how many users each other pair or group shares, and how many nobody else has;
- the order of a list, to those who pass it on: send it in an order that says nothing, as sorted by first blinding;
- two runs with one secret (or key) can be linked; take a new one for every alignment.
"""

import hmac
from hashlib import sha256
from unicodedata import normalize

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from hushrec.data.interactions import Ids
from hushrec.errors import HushrecError

Tokens = NDArray[np.uint8]  # (users, 32)

TOKEN_BYTES = 32
SHORTEST_KEY_BYTES = 16
_HASH_TAG = b"hushrec alignment v1 point\0"
_SECRET_TAG = b"hushrec alignment v1 secret\0"
_KEYED_TAG = b"hushrec alignment v1 keyed\0"
_PRIME = 2**255 - 19
_CURVE_A = 486662  # v^2 = u^3 + A u^2 + u


def secret_from(key: bytes) -> bytes:
    """The blinding secret of a key of draws, as bytes; outside a simulation each partner has its own seed."""
    return sha256(_SECRET_TAG + key).digest()


def hashed_ids(ids: Ids) -> Tokens:
    """Ids as points of the curve; 196 and "196" are the same id."""
    return _as_tokens(b"".join([_point(text) for text in _texts(ids)]))


def blind(secret: bytes, values: Tokens) -> Tokens:
    """Points times the secret, in the same order. About 45 microseconds each; threads do not help (measured)."""
    if len(secret) != TOKEN_BYTES:
        raise HushrecError(f"a secret to align users has {TOKEN_BYTES} bytes; make one with secret_from")
    raw = _checked(values).tobytes()
    # The two lookups and nothing else stay out of the loop: OpenSSL's multiplication is 95 % of the time.
    multiplied, load = X25519PrivateKey.from_private_bytes(secret).exchange, X25519PublicKey.from_public_bytes
    try:
        blinded = [multiplied(load(raw[at : at + TOKEN_BYTES])) for at in range(0, len(raw), TOKEN_BYTES)]
    except ValueError:
        # RFC 7748, section 6.1: a point of low order is zero whatever the secret.
        raise HushrecError(
            "a list to align holds a point of low order (its blinding is all zeros): refuse its sender"
        ) from None
    return _as_tokens(b"".join(blinded))


def keyed_tokens(key: bytes, ids: Ids) -> Tokens:
    """HMAC-SHA256 of the ids under a key that all partners hold; 196 and "196" are the same id."""
    if len(key) < SHORTEST_KEY_BYTES:
        raise HushrecError(f"the key to align users has {len(key)} bytes; use at least {SHORTEST_KEY_BYTES}")
    return _as_tokens(b"".join([hmac.digest(key, _KEYED_TAG + text, "sha256") for text in _texts(ids)]))


def common_numbers(own: Tokens, others: list[Tokens]) -> NDArray[np.int32]:
    """The number of each own user among the common ones, the same at every partner; -1 if nobody else has it.

    A common user's number is the place of its token among the sorted tokens that at least two partners hold.
    """
    common, tokens = _common([own, *others]), _sortable(own)
    if not len(common):
        return np.full(len(tokens), -1, np.int32)
    places = np.minimum(np.searchsorted(common, tokens), len(common) - 1)
    return np.where(common[places] == tokens, places, -1).astype(np.int32)


def num_common(lists: list[Tokens]) -> int:
    """How many tokens at least two of the lists hold."""
    return len(_common(lists))


def _common(lists: list[Tokens]) -> NDArray[np.void]:
    """The tokens that at least two lists hold, sorted; one that a list repeats counts once."""
    nobody = np.empty(0, f"V{TOKEN_BYTES}")
    held = [nobody, *(np.unique(_sortable(tokens)) for tokens in lists)]
    tokens, counts = np.unique(np.concatenate(held), return_counts=True)
    common: NDArray[np.void] = tokens[counts > 1]
    return common


def _texts(ids: Ids) -> list[bytes]:
    return [normalize("NFC", str(one).strip()).encode() for one in ids.tolist()]


def _point(text: bytes) -> bytes:
    """The first of a chain of hashes that is on the curve.

    X25519 takes any 32 bytes, half of which are on the curve's twist. Blinding keeps a point on its side, so that
    every token would tell one bit of its id's hash.
    """
    digest = sha256(_HASH_TAG + text).digest()
    while not _is_on_curve(digest):
        digest = sha256(digest).digest()
    return digest


def _is_on_curve(point: bytes) -> bool:
    """Whether v^2 = u^3 + A u^2 + u has a root: its Jacobi symbol is 1, found by reciprocity, not by a power."""
    u = int.from_bytes(point, "little") & (1 << 255) - 1
    upper, lower, is_root = (u * u + _CURVE_A * u + 1) * u % _PRIME, _PRIME, True
    while upper:
        num_twos = (upper & -upper).bit_length() - 1
        upper >>= num_twos
        if num_twos & 1 and lower & 7 in (3, 5):
            is_root = not is_root
        if upper & lower & 2:
            is_root = not is_root
        upper, lower = lower % upper, upper
    return is_root and lower == 1


def _checked(tokens: Tokens) -> Tokens:
    if tokens.dtype != np.uint8 or tokens.ndim != 2 or tokens.shape[1] != TOKEN_BYTES:
        raise HushrecError(f"a list to align must hold {TOKEN_BYTES} bytes per user; ask its sender for another")
    return np.ascontiguousarray(tokens)


def _sortable(tokens: Tokens) -> NDArray[np.void]:
    view: NDArray[np.void] = _checked(tokens).view(f"V{TOKEN_BYTES}").reshape(-1)
    return view


def _as_tokens(raw: bytes) -> Tokens:
    return np.frombuffer(raw, np.uint8).reshape(-1, TOKEN_BYTES)

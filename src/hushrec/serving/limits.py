"""Who may ask, and how often: tokens and a rate limit. Tokens are kept as digests only."""

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic

from hushrec.errors import HushrecError

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_MIN_TOKEN_LENGTH = 16


@dataclass(frozen=True)
class Rate:
    """So many requests in so many seconds."""

    requests: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """A rate from text.

        >>> Rate.parse("50/second")
        Rate(requests=50, seconds=1.0)
        """
        found = re.fullmatch(r"([0-9]{1,9})/(second|minute|hour)", text)
        if not found or int(found[1]) < 1:
            raise HushrecError(f"--rate {text!r} is not a rate; write it as 50/second, 600/minute or 9000/hour")
        return cls(int(found[1]), _SECONDS[found[2]])


class RateLimit:
    """A bucket per caller that holds `rate.requests` and refills evenly.

    A bucket is kept as the time at which it is full again; full ones are forgotten.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._forget_at = 0.0

    def seconds_to_wait(self, caller: str) -> float:
        """0 if the caller may ask now, which is then counted."""
        now, interval = self._clock(), self._rate.seconds / self._rate.requests
        if now >= self._forget_at:
            self._full_at = {name: full_at for name, full_at in self._full_at.items() if full_at > now}
            self._forget_at = now + self._rate.seconds
        full_at = max(self._full_at.get(caller, now), now) + interval
        excess = full_at - now - self._rate.seconds
        if excess > interval / 1000:  # more than rounding
            return excess
        self._full_at[caller] = full_at
        return 0.0


class Connections:
    """How many connections are open, in all and from each address; one too many is refused.

    A trusted proxy brings those of many: of its address only the sum counts.
    """

    def __init__(self, most: int, most_per_address: int, proxy: str | None = None) -> None:
        self._most, self._most_per_address, self._proxy = most, most_per_address, proxy
        self._num_open: dict[str, int] = {}
        self.num_refused = 0

    def refusal(self, address: str) -> str | None:
        """Why one more is refused; None if it is not, and is counted until `close`."""
        own = self._num_open.get(address, 0)
        if sum(self._num_open.values()) >= self._most:
            reason = f"{self._most} connections are open"
        elif own >= self._most_per_address and self._proxy not in ("*", address):
            reason = f"{self._most_per_address} connections are open from one address"
        else:
            self._num_open[address] = own + 1
            return None
        self.num_refused += 1
        return reason

    def close(self, address: str) -> None:
        """One that was not refused has ended."""
        self._num_open[address] -= 1
        if not self._num_open[address]:
            del self._num_open[address]


class Tokens:
    """The accepted tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        if not tokens:
            raise HushrecError("there is no token; write one per line, or leave the option out to get one")
        for token in tokens:
            if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token) or len(token) < _MIN_TOKEN_LENGTH:
                raise HushrecError(
                    f"a token needs at least {_MIN_TOKEN_LENGTH} letters, digits or any of . _ ~ + / = -; "
                    "make one with: openssl rand -hex 32"
                )
        self._digests = [sha256(token.encode()).digest() for token in tokens]

    def owner_of(self, authorization: bytes) -> str | None:
        """A name for the token of a header `Bearer TOKEN`, or None; takes as long whichever byte is wrong."""
        scheme, _, token = authorization.partition(b" ")
        digest = sha256(token.strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return f"token {matches.index(True)}" if scheme.lower() == b"bearer" and any(matches) else None

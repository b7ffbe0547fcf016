import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.errors import HushrecError
from hushrec.serving import limits
from hushrec.serving.limits import Connections, Rate, RateLimit, Tokens

LONG = "a-token-of-20-bytes."


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_read() -> None:
    assert doctest.testmod(limits).failed == 0
    assert Rate.parse("600/minute") == Rate(600, 60.0)
    assert Rate.parse("1/hour") == Rate(1, 3600.0)


@pytest.mark.parametrize(
    "text", ["", "50", "50/day", "0/second", "-1/second", "5.5/second", "٣/second", "1/second "]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(HushrecError, match="is not a rate; write it as 50/second"):
        Rate.parse(text)


def test_a_bucket_is_emptied_and_refills_evenly() -> None:
    """5 in 10 s: five at once, then one every 2 s."""
    clock = Clock()
    limit = RateLimit(Rate(5, 10.0), clock)
    assert [limit.seconds_to_wait("a") for _ in range(5)] == [0.0] * 5
    assert limit.seconds_to_wait("a") == pytest.approx(2.0)
    clock.now += 1.5
    assert limit.seconds_to_wait("a") == pytest.approx(0.5)
    clock.now += 0.5
    assert limit.seconds_to_wait("a") == 0.0
    assert limit.seconds_to_wait("a") == pytest.approx(2.0)
    clock.now += 100
    assert [limit.seconds_to_wait("a") for _ in range(5)] == [0.0] * 5
    assert limit.seconds_to_wait("a") > 0


def test_callers_have_buckets_of_their_own() -> None:
    limit = RateLimit(Rate(1, 60.0), Clock())
    assert limit.seconds_to_wait("a") == 0.0
    assert limit.seconds_to_wait("b") == 0.0
    assert limit.seconds_to_wait("a") > 0


def test_callers_who_are_gone_are_forgotten() -> None:
    clock = Clock()
    limit = RateLimit(Rate(50, 1.0), clock)
    for caller in range(1000):
        limit.seconds_to_wait(str(caller))
    clock.now += 2
    limit.seconds_to_wait("one more")
    assert len(limit._full_at) == 1


@given(
    requests=st.integers(1, 20),
    seconds=st.sampled_from([1.0, 60.0]),
    pauses=st.lists(st.floats(0, 2.0), min_size=1, max_size=200),
)
def test_no_window_lets_more_through_than_the_bucket_and_its_refill(
    requests: int, seconds: float, pauses: list[float]
) -> None:
    clock, admitted = Clock(), []
    limit = RateLimit(Rate(requests, seconds), clock)
    for pause in pauses:
        clock.now += pause
        if limit.seconds_to_wait("a") == 0.0:
            admitted.append(clock.now)
    for first, begin in enumerate(admitted):
        for last in range(first, len(admitted)):
            refilled = (admitted[last] - begin) * requests / seconds
            assert last - first + 1 <= requests + refilled + 0.01


def test_tokens_are_told_apart() -> None:
    tokens = Tokens([LONG, LONG + "2"])
    owners = [tokens.owner_of(f"Bearer {token}".encode()) for token in (LONG, LONG + "2")]
    assert None not in owners
    assert owners[0] != owners[1]
    assert tokens.owner_of(f"bearer  {LONG}".encode()) == owners[0]


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Bearer ", f"Basic {LONG}".encode(), LONG.encode(), f"Bearer {LONG}x".encode(),
               f"Bearer {LONG[:-1]}".encode(), b"Bearer \xff\xfe", f"Bearer {LONG.upper()}".encode()],
)  # fmt: skip
def test_other_headers_are_nobodys(header: bytes) -> None:
    assert Tokens([LONG]).owner_of(header) is None


def test_tokens_are_not_kept() -> None:
    tokens = Tokens([LONG])
    assert LONG not in repr(vars(tokens))
    assert LONG.encode() not in b"".join(tokens._digests)


@pytest.mark.parametrize("token", ["short", "has a blank inside it", "ünicode-is-not-for-headers", "x" * 15])
def test_weak_tokens_are_refused_without_being_shown(token: str) -> None:
    with pytest.raises(HushrecError, match="a token needs at least 16 letters") as caught:
        Tokens([LONG, token])
    assert token not in str(caught.value)


def test_no_token_is_refused() -> None:
    with pytest.raises(HushrecError, match="there is no token"):
        Tokens([])


def test_connections_are_counted_in_all_and_from_each_address() -> None:
    connections = Connections(3, 2)
    assert connections.refusal("a") is None
    assert connections.refusal("a") is None
    assert connections.refusal("a") == "2 connections are open from one address"
    assert connections.refusal("b") is None
    assert connections.refusal("c") == "3 connections are open"
    assert connections.num_refused == 2
    connections.close("a")
    assert connections.refusal("c") is None
    connections.close("b")
    assert connections.refusal("a") is None


@pytest.mark.parametrize("proxy", ["a", "*"])
def test_a_proxy_brings_the_connections_of_many(proxy: str) -> None:
    connections = Connections(3, 1, proxy)
    assert [connections.refusal("a") for _ in range(4)] == [None, None, None, "3 connections are open"]

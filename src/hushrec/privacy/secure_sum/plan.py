"""How many neighbours a participant has, and how many of them must come together to open a secret of its.

Bell et al. (CCS 2020), Sec. 3: participants stand on a ring in random order, and each has the k nearest as its
neighbours (a Harary graph). Of n participants, at most C work together with the server and at most D are lost.
Both sets are chosen before the order is drawn, so of the k neighbours of one participant the number of corrupted
ones is hypergeometric, X ~ (n - 1, C, k), and so is that of lost ones, Y ~ (n - 1, D, k). With a threshold of t
shares, each of three events has at most the chance `secure_failure`, by a union bound over all n participants:

1. P(X >= 2t - k): a server that tells some neighbours that a participant was lost, and others that it was not,
   gets t shares of both its secrets. Each honest one answers once, so it needs 2t <= (k - X) + 2X. (For a server
   that names one set only, as in the paper's first protocol, X < t is enough; it follows from the above.)
2. P(k - Y < t): too few neighbours are left to open a secret, and the round fails.
3. k/2 participants in a row on the ring are all corrupted or lost: the graph of the honest ones who are left could
   fall into two parts, and the sum of one part could be told from that of the other.

Where no sparse graph will do, everybody is everybody's neighbour: X and Y are at most C and D for certain.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import comb, floor

from hushrec.errors import HushrecError, option
from hushrec.limits import MOST_PARTIES, check_claim
from hushrec.privacy.secure_sum.settings import SecureSums

MOST_NEIGHBOURS = 255  # shares are values of a polynomial over 256 elements, at other places than 0


@dataclass(frozen=True)
class Plan:
    """What follows from the number of participants and the settings."""

    degree: int  # neighbours of each
    threshold: int  # shares that open a secret
    least: int  # survivors below which nothing is unmasked


def tails(population: int, marked: int, drawn: int) -> list[float]:
    """P(X >= x) for x = 0, 1, ..., drawn + 1, with X hypergeometric; exact integers, divided at the end."""
    weights = [comb(marked, number) * comb(population - marked, drawn - number) for number in range(drawn + 1)]
    upwards = list(accumulate(reversed(weights)))[::-1]
    return [*(above / upwards[0] for above in upwards), 0.0]


def chance_of_a_gap(num_parties: int, removed: int, length: int) -> float:
    """The chance that so many given places of the ring are all held by removed participants."""
    return comb(removed, length) / comb(num_parties, length) if length <= removed else 0.0


def plan_for(num_parties: int, settings: SecureSums) -> Plan:
    """The plan of a sum over so many participants: the fewest neighbours that will do."""
    check_claim("participants of a sum", num_parties, MOST_PARTIES)
    if num_parties < settings.secure_least:
        raise HushrecError(
            f"a sum over {num_parties} is not secure below {option('secure_least', settings.secure_least)}; "
            f"let more take part"
        )
    return _plan(
        num_parties,
        floor(settings.secure_corrupted * num_parties),
        floor(settings.secure_dropouts * num_parties),
        settings.secure_failure,
        settings.secure_least,
    )


@lru_cache(maxsize=64)
def _plan(num_parties: int, corrupted: int, lost: int, failure: float, secure_least: int) -> Plan:
    least = max(secure_least, num_parties - lost)
    for degree in range(2, min(num_parties - 1, MOST_NEIGHBOURS + 1), 2):
        threshold = _sparse_threshold(num_parties, corrupted, lost, degree, failure / num_parties)
        if threshold is not None:
            return Plan(degree, threshold, least)
    degree = num_parties - 1
    threshold = (degree + corrupted) // 2 + 1
    if degree > MOST_NEIGHBOURS or degree - lost < threshold:
        raise HushrecError(
            f"no graph of {num_parties} participants bears {corrupted} corrupted and {lost} lost ones; use a "
            f"lower {option('secure_corrupted')} or {option('secure_dropouts')}"
        )
    return Plan(degree, threshold, least)


def _sparse_threshold(num_parties: int, corrupted: int, lost: int, degree: int, failure: float) -> int | None:
    """The least threshold that keeps all three promises with so many neighbours; None: there is none."""
    if chance_of_a_gap(num_parties, min(corrupted + lost, num_parties), degree // 2) > failure:
        return None
    both = tails(num_parties - 1, corrupted, degree)
    above = degree // 2 + 1
    threshold = next((one for one in range(above, degree + 1) if both[2 * one - degree] <= failure), None)
    if threshold is None:
        return None
    too_many_lost = tails(num_parties - 1, lost, degree)[degree - threshold + 1]
    return threshold if too_many_lost <= failure else None

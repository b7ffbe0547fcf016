"""The settings of secure sums: one place for all systems that have them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from hushrec.privacy.user_privacy import UserPrivacy
from hushrec.protocol import Exposure
from hushrec.settings import setting

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class SecureSums(UserPrivacy):
    """The switch, and what the graph of neighbours and the threshold follow from."""

    secure_sums: bool = setting(False, "mask what is uploaded, so that the server sees nothing but the sum")
    secure_masks: Literal["counted", "real"] = setting(
        "counted", "make the masks, or count their bytes only; audits and deployments always make them"
    )
    secure_corrupted: float = setting(
        0.05, "share of participants that may work together with the server", "[0, 0.5)"
    )
    secure_dropouts: float = setting(
        0.1, "share of participants that may be lost after they sent their keys", "[0, 0.5)"
    )
    secure_failure: float = setting(
        1e-9, "chance that a round's graph does not keep what it promises for these shares", "(0, 1)"
    )
    secure_least: int = setting(3, "participants below which no sum is unmasked", "[2, inf)")
    secure_together: int = setting(
        0,
        "clients that are in the same sums at the least, so that sums differ by no fewer; 0: not looked at",
        "[0, inf)",
    )


@dataclass(frozen=True, kw_only=True)
class SecureItemSums(SecureSums):
    """The same, of sums with a row for each item that a client lists."""

    secure_least_raters: int = setting(
        0, "clients with a row of an item below which it is left out of a sum; 0: none is", "[0, inf)"
    )
    secure_count_noise: float = setting(
        0.0, "deviation of the noise in the counts by which items are left out", "[0, inf)"
    )


# What secure sums need so that audits found nothing in them; and who is in a sum: always the same people, or at
# least many together. `docs/secure-sums.md` has what was measured.
_MASKED = {
    "secure_sums": True,
    "secure_corrupted": "[0.05, 0.5)",
    "secure_failure": "(0, 1e-9]",
    "secure_least": "[3, inf)",
}
_SAME_PEOPLE: tuple[Mapping[str, Any], ...] = ({"participation": 1.0}, {"secure_together": "[10, inf)"})


def hidden_in_sums(words: str, **also: Any) -> tuple[Exposure, ...]:
    """Secure sums as audits call them protected, with what else a system needs for it, and what is still seen."""
    return tuple(Exposure(words, {**_MASKED, **people, **also}) for people in _SAME_PEOPLE)


# With secure sums that are otherwise.
SUMS_OF_FEW = Exposure(
    "over many rounds the server can solve its sums for who has which item", {"secure_sums": True}
)


def is_secure(config: object) -> bool:
    """Whether sums are secure."""
    return isinstance(config, SecureSums) and config.secure_sums


def is_counted(config: SecureSums) -> bool:
    """Whether masks are counted only."""
    return config.secure_masks == "counted"


def in_full(config: Config) -> Config:
    """The same settings with masks that are made."""
    return replace(config, secure_masks="real") if isinstance(config, SecureSums) else config

"""The systems, by name. A system is one line here; those of other packages come in by entry points."""

from typing import TYPE_CHECKING

from hushrec.plugins import Registry

if TYPE_CHECKING:
    from hushrec.protocol import AnySystem

_HOME = "hushrec.systems"

# The module of each.
_BUILT_IN = {
    "pmf": "pmf",
    "fedrec": "fedrec",
    "fedrec++": "fedrec_plus_plus",
    "fedrec-bpr": "fedrec_bpr",
    "sdcf": "sdcf",
    "sdcf-denoised": "sdcf_denoised",
    "ptf-fedrec": "ptf_fedrec",
    "fcf": "fcf",
    "fedmf": "fedmf",
    "fedncf": "fedncf",
    "metamf": "metamf",
    "neumf": "neumf",
    "ngcf": "ngcf",
    "lightgcn": "lightgcn",
    "fedcore": "fedcore",
    "neucf": "neucf",
    "average": "average",
    "drift": "drift",
    "saros": "saros",
}

SYSTEMS: "Registry[AnySystem]" = Registry(
    "system",
    _HOME,
    "SYSTEM",
    {name: f"{_HOME}.{module}" for name, module in _BUILT_IN.items()},
    kind="hushrec.protocol:System",
)


def system_named(name: str) -> "AnySystem":
    """The system of this name."""
    return SYSTEMS.named(name)

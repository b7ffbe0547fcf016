"""The systems, by name. A system is one line here; those of other packages come in by entry points."""

from hushrec.plugins import Registry
from hushrec.protocol import AnySystem, System

_HOME = "hushrec.systems"

SYSTEMS: Registry[AnySystem] = Registry(
    "system",
    _HOME,
    "SYSTEM",
    {
        "pmf": f"{_HOME}.pmf",
        "fedrec": f"{_HOME}.fedrec",
        "fedrec++": f"{_HOME}.fedrec_plus_plus",
        "fedrec-bpr": f"{_HOME}.fedrec_bpr",
        "sdcf": f"{_HOME}.sdcf",
        "sdcf-denoised": f"{_HOME}.sdcf_denoised",
        "ptf-fedrec": f"{_HOME}.ptf_fedrec",
        "fcf": f"{_HOME}.fcf",
        "fedmf": f"{_HOME}.fedmf",
        "fedncf": f"{_HOME}.fedncf",
        "metamf": f"{_HOME}.metamf",
        "neumf": f"{_HOME}.neumf",
        "ngcf": f"{_HOME}.ngcf",
        "lightgcn": f"{_HOME}.lightgcn",
        "fedcore": f"{_HOME}.fedcore",
        "neucf": f"{_HOME}.neucf",
        "average": f"{_HOME}.average",
        "drift": f"{_HOME}.drift",
        "saros": f"{_HOME}.saros",
    },
    kind=System,
)


def system_named(name: str) -> AnySystem:
    """The system of this name."""
    return SYSTEMS.named(name)

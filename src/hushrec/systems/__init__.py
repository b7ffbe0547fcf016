"""The published systems, one file each."""

from typing import Any

from hushrec.errors import HushrecError
from hushrec.protocol import System
from hushrec.systems import (
    average,
    drift,
    fcf,
    fedcore,
    fedmf,
    fedrec,
    fedrec_plus_plus,
    lightgcn,
    metamf,
    neucf,
    neumf,
    ngcf,
    pmf,
    ptf_fedrec,
    saros,
    sdcf,
    sdcf_denoised,
)

SYSTEMS: dict[str, System[Any, Any, Any]] = {
    system.name: system
    for system in (
        pmf.SYSTEM,
        fedrec.SYSTEM,
        fedrec_plus_plus.SYSTEM,
        sdcf.SYSTEM,
        sdcf_denoised.SYSTEM,
        ptf_fedrec.SYSTEM,
        fcf.SYSTEM,
        fedmf.SYSTEM,
        metamf.SYSTEM,
        neumf.SYSTEM,
        ngcf.SYSTEM,
        lightgcn.SYSTEM,
        fedcore.SYSTEM,
        neucf.SYSTEM,
        average.SYSTEM,
        drift.SYSTEM,
        saros.SYSTEM,
    )
}


def system_named(name: str) -> System[Any, Any, Any]:
    """The system of this name."""
    if name not in SYSTEMS:
        raise HushrecError(f"no system {name!r}; choose from {', '.join(SYSTEMS)}")
    return SYSTEMS[name]

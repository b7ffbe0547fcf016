"""The systems, by name. A system is one line here; those of other packages come in by entry points."""

from typing import TYPE_CHECKING

from hushrec.plugins import Registry

if TYPE_CHECKING:
    from hushrec.protocol import AnySystem

_HOME = "hushrec.systems"

# The module of each, and its title, so that systems can be listed without being loaded.
_BUILT_IN = {
    "pmf": ("pmf", "PMF: all ratings in one place, the baseline"),
    "fedrec": ("fedrec", "FedRec: rated items hidden among virtual ones"),
    "fedrec++": ("fedrec_plus_plus", "FedRec++: virtual items, and denoisers who take their noise out again"),
    "fedrec-bpr": (
        "fedrec_bpr",
        "FedRec++ with a pairwise ranking loss: virtual pairs, and denoisers who take their noise out again",
    ),
    "sdcf": ("sdcf", "SDCF: randomised response and Langevin noise"),
    "sdcf-denoised": ("sdcf_denoised", "SDCF denoised: SDCF with FedRec++'s denoisers"),
    "ptf-fedrec": ("ptf_fedrec", "PTF-FedRec: predictions instead of parameters, the server's model stays hidden"),
    "fcf": ("fcf", "FCF: gradients of all items to the server, for implicit feedback"),
    "fedmf": ("fedmf", "FedMF: item vectors under homomorphic encryption"),
    "fedncf": ("fedncf", "FedNCF: item vectors and layers averaged, each by what trained it"),
    "metamf": ("metamf", "MetaMF: the server generates every user's recommender"),
    "neumf": ("neumf", "NeuMF: all items in one place, dense layers"),
    "ngcf": ("ngcf", "NGCF: all items in one place, messages over their graph"),
    "lightgcn": ("lightgcn", "LightGCN: all items in one place, means over their graph"),
    "fedcore": ("fedcore", "FedCORE: organisations train together and serve each other's users"),
    "neucf": ("neucf", "NeuCF: all ratings in one place, a product and a dense branch"),
    "average": ("average", "AvgFilling: the mean of all ratings, the baseline"),
    "drift": ("drift", "DRIFT: data owners learn from encrypted interactions, online"),
    "saros": ("saros", "SAROS: learning from blocks in one place"),
}

SYSTEMS: "Registry[AnySystem]" = Registry(
    "system",
    _HOME,
    "SYSTEM",
    {name: f"{_HOME}.{module}" for name, (module, _) in _BUILT_IN.items()},
    kind="hushrec.protocol:System",
)


def system_named(name: str) -> "AnySystem":
    """The system of this name."""
    return SYSTEMS.named(name)


def titles() -> dict[str, str]:
    """The title of every system that can be used; only those of other packages are loaded for it."""
    others = {name: system.about.title for name, system in SYSTEMS.others().items()}
    return {name: title for name, (_, title) in _BUILT_IN.items()} | others

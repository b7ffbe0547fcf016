"""hushrec: federated recommender systems. Run them, measure them, use them, from one implementation.

>>> import hushrec
>>> data = hushrec.load("synthetic:users=60,items=40,ratings=900")
>>> split = next(hushrec.k_folds(data))
>>> model = hushrec.FedRecPlusPlus(rho=3, denoisers=2, num_rounds=5).fit(split.train)
>>> sorted(model.evaluate(split.test))[:2]
['HR@10', 'MAE']
"""

from hushrec.data import (
    Interactions,
    k_folds,
    latest_share,
    leave_one_out,
    load,
    random_share,
    read,
    synthetic,
)
from hushrec.errors import HushrecError
from hushrec.recommender import (
    DRIFT,
    FCF,
    NGCF,
    PMF,
    SAROS,
    SDCF,
    Average,
    FedCORE,
    FedMF,
    FedRec,
    FedRecPlusPlus,
    LightGCN,
    MetaMF,
    NeuCF,
    NeuMF,
    PTFFedRec,
    SDCFDenoised,
    load_run,
)
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.systems import SYSTEMS

__version__ = "0.1.0"

__all__ = [
    "DRIFT",
    "FCF",
    "NGCF",
    "PMF",
    "SAROS",
    "SDCF",
    "SYSTEMS",
    "Average",
    "FedCORE",
    "FedMF",
    "FedRec",
    "FedRecPlusPlus",
    "HushrecError",
    "Interactions",
    "LightGCN",
    "MetaMF",
    "NeuCF",
    "NeuMF",
    "PTFFedRec",
    "RuntimeOptions",
    "SDCFDenoised",
    "k_folds",
    "latest_share",
    "leave_one_out",
    "load",
    "load_run",
    "random_share",
    "read",
    "synthetic",
]

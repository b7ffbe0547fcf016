"""Data: who interacted with what, read from files, split, and in whose hands it is (`holdings/`).

Goes in: files and names of datasets. May read and write files, and fetch a dataset; knows no system.
"""

from hushrec.data.catalogue import CATALOGUE, load
from hushrec.data.dealing import copies
from hushrec.data.holdings.owners import OwnerRows, Owners, owned
from hushrec.data.holdings.partners import PartnerRows, Partners, alone, join
from hushrec.data.interactions import Holding, Interactions, UserRows
from hushrec.data.passed_over import with_passed_over
from hushrec.data.readers import read
from hushrec.data.reading import Columns, Reading
from hushrec.data.splits import (
    Deal,
    Deals,
    Measure,
    Split,
    SplitKind,
    global_time,
    k_folds,
    latest_share,
    leave_one_out,
    random_share,
)
from hushrec.data.stream import stream_order
from hushrec.data.synthetic import synthetic

__all__ = [
    "CATALOGUE",
    "Columns",
    "Deal",
    "Deals",
    "Holding",
    "Interactions",
    "Measure",
    "OwnerRows",
    "Owners",
    "PartnerRows",
    "Partners",
    "Reading",
    "Split",
    "SplitKind",
    "UserRows",
    "alone",
    "copies",
    "global_time",
    "join",
    "k_folds",
    "latest_share",
    "leave_one_out",
    "load",
    "owned",
    "random_share",
    "read",
    "stream_order",
    "synthetic",
    "with_passed_over",
]

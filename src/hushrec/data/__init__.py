"""Data: interactions, the catalogue of data sets, readers, splits and a synthetic generator."""

from hushrec.data.catalogue import CATALOGUE, load
from hushrec.data.interactions import Interactions, OwnerRows, Owners, PartnerRows, Partners, UserRows
from hushrec.data.owners import OwnersSummary, owned, owners_summary
from hushrec.data.partners import Deal, alone, copies, join
from hushrec.data.passed_over import with_passed_over
from hushrec.data.readers import Columns, read
from hushrec.data.splits import Measure, Split, k_folds, latest_share, leave_one_out, random_share
from hushrec.data.stream import stream_order
from hushrec.data.synthetic import synthetic

__all__ = [
    "CATALOGUE",
    "Columns",
    "Deal",
    "Interactions",
    "Measure",
    "OwnerRows",
    "Owners",
    "OwnersSummary",
    "PartnerRows",
    "Partners",
    "Split",
    "UserRows",
    "alone",
    "copies",
    "join",
    "k_folds",
    "latest_share",
    "leave_one_out",
    "load",
    "owned",
    "owners_summary",
    "random_share",
    "read",
    "stream_order",
    "synthetic",
    "with_passed_over",
]

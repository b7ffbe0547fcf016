"""Baselines: simple models that stand beside a federated one. They are centralised: they see all training rows.

Goes in: training rows and a seed. Comes out: something that scores. Item-kNN and ALS are those of the package
`implicit`; where it is missing, they are left out.
"""

from hushrec.baselines.biases import Biases
from hushrec.baselines.choice import BASELINES, Baseline, are_installed
from hushrec.baselines.popularity import Popularity

__all__ = ["BASELINES", "Baseline", "Biases", "Popularity", "are_installed"]

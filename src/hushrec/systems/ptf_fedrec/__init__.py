"""PTF-FedRec: server and clients exchange predictions only.

`system.py` is the protocol; start there. The clients' own models, trained in batches, are in `client*.py`.
"""

from hushrec.systems.ptf_fedrec.system import SYSTEM as SYSTEM

"""FedCORE: organisations train together and serve each other's users under encryption.

`system.py` is the protocol; start there. Alignment, training steps, encrypted scores and the budget are beside it.
"""

from hushrec.systems.fedcore.system import SYSTEM as SYSTEM

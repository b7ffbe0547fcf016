"""DRIFT: data owners learn from encrypted interactions. Also here: its blocks, cipher, store and live mode.

`system.py` is the protocol; start there.
"""

from hushrec.systems.drift.system import SYSTEM as SYSTEM

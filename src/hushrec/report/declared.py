"""What systems declare, as reports take it from `hushrec.protocol.declared`."""

from hushrec.protocol.declared import reveals as reveals
from hushrec.protocol.declared import threat_model as threat_model

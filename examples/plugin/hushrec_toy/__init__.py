"""A system, an attack and a data set that are not part of hushrec."""

"""How much a party of DRIFT may claim: what others can afford, whatever it says. Used by `drift`."""

MOST = 1 << 24  # users or items: an owner keeps 9 bytes for each user, the orchestrator a vector
MOST_WINDOWS = 1 << 31  # of a round; half of a `stamp_of`
MOST_ROUNDS = 1 << 31  # the other half
MOST_MESSAGES = 1 << 62  # to an owner: their numbers can be counted in 64 bits
MOST_NUMBERS = 1 << 28  # of vectors that are sent at once, or kept for newcomers: 1 GB
MOST_EVENTS = 1 << 31  # of a round

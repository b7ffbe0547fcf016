"""What the tables of the FedCORE paper measure inside a run while partners train."""

from hushrec.draws import Draws
from hushrec.experiments.fedcore_tables import identified, items_after, similarity
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job
from hushrec.systems.fedcore.inference import MAIL, PublicKeys
from hushrec.systems.fedcore.messages import UserGradients

# DEVIATION: the paper does not say after which epoch it attacks gradients.
_ATTACKED_AFTER = 20


def _identification(job: Job, progress: Progress) -> dict[str, float]:
    """Items of a that are among b's most similar ones, after the last round."""
    if progress.round_number != job.config.num_rounds:
        return {}
    one, other = progress.private.partners[:2]
    return identified(job.train, one.item_factors, other.item_factors, job.config)


def _identification_within(num_steps: int) -> Probe:
    """The same within the first round, after so many of its steps."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        if progress.round_number != 1:
            return {}
        one, other = items_after(num_steps, progress, job.config, Draws(job.seed))[:2]
        return identified(job.train, one, other, job.config)

    return look


def _similarity(privatizer: str) -> Probe:
    """Cosines of what b recovers from gradients that a defence has gone over."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        if progress.round_number != _ATTACKED_AFTER:
            return {}
        return similarity(job.train, progress.private, job.config, privatizer, Draws(job.seed))

    return look


def _communication(job: Job, progress: Progress) -> dict[str, float]:
    """What partners sent, as the paper counts it: rows of a partner in training, letters about a visitor.

    Rows are held against the two counts of the text, of the last round's batches: their ratings by common users,
    and how many common users they have.
    """
    if progress.round_number != job.config.num_rounds:
        return {}
    partners, transcript = progress.private.partners, progress.transcript
    num_ratings = num_users = 0
    for partner in partners:
        assert partner.order is not None
        num_steps = int(progress.state.num_steps)
        size = min(job.config.batch_size, len(partner.ratings))
        batches = partner.common_users[partner.users[partner.order[1][: num_steps * size]]].reshape(
            num_steps, size
        )
        num_ratings += int((batches >= 0).sum())
        num_users += sum(len(set(batch[batch >= 0].tolist())) for batch in batches)
    sent, last = transcript.total(UserGradients), transcript.tallies[progress.round_number, UserGradients]
    letters = transcript.total(*(kind for kind in MAIL if kind is not PublicKeys)).messages
    num_served = int((progress.private.helpers >= 0).sum())
    return {
        "steps": sent.messages / len(partners),
        "rows": sent.rows / len(partners),
        "rows per rating": last.rows / num_ratings,
        "rows per common user": last.rows / num_users,
        # Half of them the asking partner sends, half it receives.
        "letters sent per visitor": letters / 2 / num_served if num_served else 0.0,
    }


PROBES: dict[str, Probe] = {
    "identification": _identification,
    **{f"identification, k={steps}": _identification_within(steps) for steps in (0, 5, 20)},
    **{f"similarity {name}": _similarity(name) for name in ("none", "average", "dp", "dp+average")},
    "communication": _communication,
}

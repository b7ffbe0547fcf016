"""What an audit trains: data and settings as they were typed."""

from typing import Any, NamedTuple

from hushrec.cli.audit import AuditOptions
from hushrec.cli.options import configured
from hushrec.data import Deal, Interactions
from hushrec.protocol import AnySystem
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.training import Job


class AuditedJob(NamedTuple):
    """A run over the first split of the data, and what that leaves to test on."""

    job: Job
    test: Interactions


def job_to_audit(system: AnySystem, values: dict[str, Any], options: AuditOptions) -> AuditedJob:
    """Read the data and cut it."""
    data = options.source.load()
    config = configured(system, values, data.name)
    settings = settings_for(
        system, options.seed, 1, options.split, options.test_share, deal=Deal(options.partners),
        owners=options.owners, data=data,
    )  # fmt: skip
    split = next(splits_for(system, data, settings, config))
    return AuditedJob(Job(system, config, options.seed, split.train), split.test)

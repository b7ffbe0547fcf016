"""How good a model is: errors of ratings, rankings, significance, and what a row means (`feedback.py`).

Goes in: scores and test rows. Pure: nothing is drawn but by a key, nothing is read or written.
"""

from hushrec.evaluation.ranking import Rows, evaluated_users, ranking_metrics, ranking_per_user
from hushrec.evaluation.rating import rating_metrics
from hushrec.evaluation.sampled import sampled_metrics, sampled_per_user
from hushrec.evaluation.significance import Interval, bootstrap_interval
from hushrec.evaluation.top_k import top_k

__all__ = [
    "Interval",
    "Rows",
    "bootstrap_interval",
    "evaluated_users",
    "ranking_metrics",
    "ranking_per_user",
    "rating_metrics",
    "sampled_metrics",
    "sampled_per_user",
    "top_k",
]

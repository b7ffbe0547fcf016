"""What a server counts, as Prometheus reads it (text format 0.0.4): by route and status, nothing of anybody."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
_OTHER = "other"  # the route of what was refused before it was looked up, or not found


@dataclass
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS) + 1))
    seconds: float = 0.0


class Meter:
    """Counts since the server began. Labels are names of routes and statuses, so there are few."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations: dict[str, _Histogram] = {}
        self._reloads: Counter[str] = Counter(taken=0, refused=0)
        self._model: Mapping[str, str] = {}
        self._lock = Lock()

    def count_request(self, route: str | None, status: int, seconds: float) -> None:
        """One request was answered."""
        with self._lock:
            self._requests[route or _OTHER, status] += 1
            histogram = self._durations.setdefault(route or _OTHER, _Histogram())
            histogram.counts[bisect_left(_BUCKETS, seconds)] += 1
            histogram.seconds += seconds

    def count_reload(self, result: Literal["taken", "refused"]) -> None:
        """A newer run was taken up, or could not be."""
        with self._lock:
            self._reloads[result] += 1

    def describe_model(self, labels: Mapping[str, str]) -> None:
        """Tell which model is served from now on."""
        self._model = labels

    def text(self) -> str:
        """All of it, as it is now."""
        with self._lock:
            lines = [
                *_family("hushrec_requests_total", "counter", "Requests answered, by route and status."),
                *(
                    _sample("hushrec_requests_total", {"route": route, "status": str(status)}, count)
                    for (route, status), count in sorted(self._requests.items())
                ),
                *_family("hushrec_request_seconds", "histogram", "Time to answer a request, by route."),
                *(line for route in sorted(self._durations) for line in self._of_route(route)),
                *_family("hushrec_reloads_total", "counter", "Newer runs that were taken up or refused."),
                *(
                    _sample("hushrec_reloads_total", {"result": result}, count)
                    for result, count in sorted(self._reloads.items())
                ),
                *_family("hushrec_model_info", "gauge", "Which model is served."),
                _sample("hushrec_model_info", self._model, 1),
            ]
        return "\n".join([*lines, ""])

    def _of_route(self, route: str) -> Iterable[str]:
        histogram, below = self._durations[route], 0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), histogram.counts, strict=True):
            below += count
            yield _sample("hushrec_request_seconds_bucket", {"route": route, "le": bound}, below)
        yield _sample("hushrec_request_seconds_sum", {"route": route}, round(histogram.seconds, 6))
        yield _sample("hushrec_request_seconds_count", {"route": route}, below)


def _family(name: str, kind: str, told: str) -> tuple[str, str]:
    return f"# HELP {name} {told}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{told}}} {value}" if told else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

import re

from hushrec.serving.metrics import Meter

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\\n])*"(,[a-z]+="(\\.|[^"\\\n])*")*\})? [0-9.e+-]+')


def test_requests_are_counted_by_route_and_status() -> None:
    meter = Meter()
    for status in (200, 200, 404):
        meter.count_request("/v1/model", status, 0.01)
    meter.count_request(None, 401, 0.2)
    lines = meter.text().splitlines()
    assert 'hushrec_requests_total{route="/v1/model",status="200"} 2' in lines
    assert 'hushrec_requests_total{route="/v1/model",status="404"} 1' in lines
    assert 'hushrec_requests_total{route="other",status="401"} 1' in lines


def test_times_are_in_buckets_that_add_up() -> None:
    """1 ms counts in the bucket up to .001, which includes its bound; 3 s are beyond the last."""
    meter = Meter()
    for seconds in (0.001, 0.0011, 0.03, 3.0):
        meter.count_request("/health", 200, seconds)
    found = re.findall(r'seconds_bucket\{route="/health",le="(.*)"\} (\d+)', meter.text())
    buckets = {bound: int(count) for bound, count in found}
    assert [buckets[bound] for bound in ("0.001", "0.0025", "0.025", "0.05", "2.5", "+Inf")] == [1, 2, 2, 3, 3, 4]
    assert 'hushrec_request_seconds_sum{route="/health"} 3.0321' in meter.text()
    assert 'hushrec_request_seconds_count{route="/health"} 4' in meter.text()


def test_models_and_reloads() -> None:
    meter = Meter()
    assert 'hushrec_reloads_total{result="taken"} 0' in meter.text()
    meter.count_reload("taken")
    meter.count_reload("refused")
    meter.describe_model({"system": "pmf", "data": 'a "b"\\c\nd'})
    assert 'hushrec_reloads_total{result="taken"} 1' in meter.text()
    assert 'hushrec_reloads_total{result="refused"} 1' in meter.text()
    assert r'hushrec_model_info{system="pmf",data="a \"b\"\\c\nd"} 1' in meter.text().splitlines()


def test_every_line_is_of_the_format() -> None:
    meter = Meter()
    meter.count_request("/v1/users/{user_id}/recommendations", 200, 0.004)
    meter.describe_model({"system": "pmf"})
    text = meter.text()
    assert text.endswith("\n")
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            names.add(line.split()[2])
        elif not line.startswith("# HELP"):
            assert SAMPLE.fullmatch(line), line
            assert re.sub(r"_(bucket|sum|count)$", "", re.split(r"[{ ]", line)[0]) in names

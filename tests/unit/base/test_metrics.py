"""Metrics as Prometheus reads them."""

from __future__ import annotations

from penstock.base.metrics import Family, Histogram, Kind, Sample, counter, gauge, lines


def told(*families: Family) -> str:
    return "".join(lines(families))


def test_a_family_has_its_help_its_kind_and_its_samples() -> None:
    family = Family("a_total", Kind.COUNTER, "Things.", lambda: [Sample((), 3), Sample((("topic", "t"),), 2.5)])
    assert told(family) == '# HELP a_total Things.\n# TYPE a_total counter\na_total 3\na_total{topic="t"} 2.5\n'


def test_a_value_keeps_every_digit() -> None:
    assert "a 1234567890123\n" in told(gauge("a", "x", lambda: 1_234_567_890_123))
    assert "b 0.123456789\n" in told(counter("b", "x", lambda: 0.123456789))


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    family = Family("a", Kind.GAUGE, "x", lambda: [Sample((("topic", 'q"\\\nz'),), 1)])
    assert 'a{topic="q\\"\\\\\\nz"} 1\n' in told(family)


def test_a_histograms_buckets_are_cumulative_and_end_with_everything() -> None:
    histogram = Histogram()
    for duration_us in (0, 1, 3, 3, 900, 10**12):
        histogram.add(duration_us)
    samples = list(histogram.samples((("request", "Produce"),)))
    edges = [(dict(sample.labels)["le"], sample.value) for sample in samples if sample.suffix == "_bucket"]
    assert edges == [("0.001", 1), ("0.002", 2), ("0.004", 4), ("1.024", 5), ("+Inf", 6)]
    assert [sample.value for sample in samples[-2:]] == [(10**12 + 907) / 1000, 6]


def test_a_quantile_is_the_edge_that_its_share_does_not_pass() -> None:
    histogram = Histogram()
    assert histogram.quantile_us(0.5) == 0
    for duration_us in [1] * 99 + [5000]:
        histogram.add(duration_us)
    assert histogram.quantile_us(0.5) == 2
    assert histogram.quantile_us(0.99) == 2
    assert histogram.quantile_us(0.999) == 8192

"""Frames and batches that atheris makes out of good ones: none of them does what it should not."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from penstock.handlers.registry import make_registry
from penstock.records.batch import Codec
from penstock.records.build import build_batch
from tests.support import judges
from tests.support.wire import build, header

RECORDS = [
    (1_700_000_000_000, b"key", b"value" * 5, [("header", b"x"), ("none", None)]),
    (1_700_000_000_001, None, None, []),
]
HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.version_info < (3, 14)


def frames(corpus: Path) -> None:
    for key, api in make_registry().items():
        for version in {api.low, api.high}:
            schema = load_request_schema(key, version)
            body = io.BytesIO()
            entity_writer(schema)(body, build(schema, {}))
            (corpus / f"{key}-{version}").write_bytes(header(key, version, schema) + body.getvalue())
    batch = build_batch(RECORDS)
    entry = {"index": 0, "records": batch}
    for version in (3, 9):
        schema = load_request_schema(0, version)
        body = io.BytesIO()
        values = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [entry]}]}
        entity_writer(schema)(body, build(schema, values))
        (corpus / f"produce-{version}").write_bytes(header(0, version, schema) + body.getvalue())


def batches(corpus: Path) -> None:
    for codec in Codec:
        (corpus / codec.name).write_bytes(build_batch(RECORDS, codec=codec))
        (corpus / f"{codec.name}-idempotent").write_bytes(
            build_batch(RECORDS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
        )


@pytest.mark.skipif(not HAS_WHEEL, reason="atheris is built for Linux on x86_64 and Pythons up to 3.13 only")
@pytest.mark.parametrize("target", ["frames", "batches"])
def test_nothing_but_declared_errors(target: str, tmp_path: Path, full_counts: bool) -> None:
    # A2, A3, A4
    if importlib.util.find_spec("atheris") is None:
        assert not judges.ON_CI, "atheris is missing"
        pytest.skip("atheris is not installed")
    (corpus := tmp_path / "corpus").mkdir()
    {"frames": frames, "batches": batches}[target](corpus)
    runs = 300_000 if full_counts else 3_000
    options = [f"-atheris_runs={runs}", "-seed=1", "-max_len=2000", "-rss_limit_mb=0", "-timeout=30"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzzed", target, *options, f"-artifact_prefix={tmp_path}/", corpus],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert f"Done {runs}" in ran.stderr

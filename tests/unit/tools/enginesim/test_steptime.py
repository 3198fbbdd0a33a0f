"""The roofline: which account each switch moves."""

import pytest

from tests.unit.tools.enginesim.support import settings
from tools.enginesim.steptime import StepTime, StepWork

DECODE = StepWork(prefill_tokens=0, prefill_pairs=0.0, decodes=8, context_tokens=8 * 500)
LONG_DECODE = StepWork(prefill_tokens=0, prefill_pairs=0.0, decodes=64, context_tokens=64 * 8000)
PREFILL = StepWork(prefill_tokens=8192, prefill_pairs=8192 * 4096, decodes=0, context_tokens=0)


def seconds(work: StepWork, *flags: str, **environment: str) -> float:
    return StepTime(settings(*flags, **environment)).seconds(work)


def test_small_batches_pay_for_weights_and_long_ones_for_kv() -> None:
    assert seconds(DECODE, "--quantization", "awq") < 0.6 * seconds(DECODE)
    assert seconds(LONG_DECODE, "--kv-cache-dtype", "fp8") < 0.75 * seconds(LONG_DECODE)
    assert seconds(DECODE, "--kv-cache-dtype", "fp8") == pytest.approx(seconds(DECODE), rel=0.05)


def test_four_bit_weights_lose_on_large_prefills() -> None:
    assert seconds(PREFILL, "--quantization", "awq") > seconds(PREFILL)
    assert seconds(PREFILL, "--quantization", "fp8") < seconds(PREFILL)


def test_eager_mode_pays_launches() -> None:
    assert seconds(DECODE, "--enforce-eager") > seconds(DECODE) + 2e-3


def test_a_newer_engine_launches_a_little_faster() -> None:
    assert 0.9 < seconds(DECODE, ENGINESIM_VERSION="0.33.0") / seconds(DECODE) < 1.0


def test_tensor_parallelism_divides_work_and_adds_collectives() -> None:
    assert 0.25 < seconds(PREFILL, "-tp", "4") / seconds(PREFILL) < 0.5
    assert 0.25 < seconds(DECODE, "-tp", "4") / seconds(DECODE) < 0.75


def test_host_work_hides_behind_the_device_only_when_asynchronous() -> None:
    assert seconds(DECODE, "--no-async-scheduling") > seconds(DECODE) + 0.4e-3

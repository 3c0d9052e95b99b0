"""What PPO can be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from attn_sched.errors import InputError
from attn_sched.training.settings import PPOSettings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agents", ()), ("agents", ("job", "job")), ("agents", ("cpu",)), ("clusters", 0), ("decisions", 1.5),
        ("epochs", True), ("minibatch", -1), ("job_rate", 2.0), ("gpu_rate", float("nan")), ("value_rate", "fast"),
        ("final_rate", -0.1), ("total_decisions", 0), ("clip", 0.0), ("entropy", -1e-9), ("gamma", 1.01),
        ("lam", -0.5), ("advantage_clamp", 0), ("gradient_clip", float("nan")), ("kl_limit", 0.0),
        ("value_warmup", -1), ("huber", -1.0), ("runners", -1), ("seed", -1),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        PPOSettings(**{field: value})
    assert caught.value.field == field


def test_json_and_back() -> None:
    settings = PPOSettings(agents=("gpu",), gpu_rate=1e-3, final_rate=0.1)
    assert PPOSettings.from_dict(json.loads(json.dumps(settings.as_dict()))) == settings
    assert PPOSettings.from_dict({"clip": 0.3}).clip == 0.3
    with pytest.raises(InputError, match="'clib' is unknown"):
        PPOSettings.from_dict({"clib": 0.3})


def test_learning_rates() -> None:
    settings = PPOSettings(job_rate=1e-3, gpu_rate=2e-3)
    assert settings.schedule(settings.rate("gpu")) == 2e-3
    falling = PPOSettings(job_rate=1e-3, final_rate=0.25, total_decisions=1000)
    assert falling.schedule(falling.rate("job")) == [[0, 1e-3], [1000, 2.5e-4]]

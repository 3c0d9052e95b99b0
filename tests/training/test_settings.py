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
        ("final_rate", -0.1), ("total_decisions", 0), ("clip", 0.0), ("job_entropy", -1e-9), ("gamma", 1.01),
        ("job_lam", -0.5), ("advantage_clamp", 0), ("gradient_clip", float("nan")), ("kl_limit", 0.0),
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
    settings = PPOSettings(job_rate=1e-3, gpu_rate=2e-3, rate_warmup=0)
    assert settings.policy_rate("gpu") == settings.rate("gpu") == 2e-3
    falling = PPOSettings(job_rate=1e-3, value_rate=4e-3, rate_warmup=0, final_rate=0.25, total_decisions=1000)
    assert falling.policy_rate("job") == [[0, 1e-3], [1000, 2.5e-4]]
    assert falling.critic_rate == [[0, 4e-3], [1000, 1e-3]]


def test_policies_learn_slowly_at_first() -> None:
    """A tenth of the rate while the critics learn alone, then rising to the whole."""
    settings = PPOSettings(clusters=10, decisions=10, job_rate=1e-3, value_warmup=3, rate_warmup=2)
    assert settings.policy_rate("job") == [[0, pytest.approx(1e-4)], [300, pytest.approx(1e-4)], [500, 1e-3]]
    assert settings.critic_rate == settings.value_rate
    at_once = PPOSettings(clusters=10, decisions=10, job_rate=1e-3, value_warmup=0, rate_warmup=2)
    assert at_once.policy_rate("job") == [[0, pytest.approx(1e-4)], [200, 1e-3]]
    short = PPOSettings(clusters=10, decisions=10, value_warmup=3, rate_warmup=2, final_rate=0.1, total_decisions=100)
    points = short.policy_rate("job")
    assert isinstance(points, list) and [place for place, _ in points] == [0, 300, 500, 501]  # places only rise

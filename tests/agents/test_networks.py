"""Networks: what a permutation, padding, another size or another batch may and may not change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.agents.networks import MASKED, Critic, GpuNet, Inputs, JobNet
from attn_sched.agents.pair import AgentPair, check_finite, sample
from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES
from attn_sched.agents.spec import NetworkSpec
from attn_sched.errors import InputError

Obs = dict[str, torch.Tensor]
SPECS = [
    NetworkSpec(width=16, heads=2, layers=2, feedforward=32, critic_width=16),
    NetworkSpec(width=16, heads=4, layers=1, feedforward=16, critic_width=8, topology_bias=False),
    NetworkSpec(width=8, heads=2, layers=2, feedforward=16, critic_width=8, attention=False),
]


def observe(seed: int, count: int, waiting: int, racks: int = 2, nodes: int = 4, window: int = 32) -> Obs:
    """Random observations of ``count`` decisions with ``waiting`` jobs on a cluster of ``racks`` x ``nodes``."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) * 0.9 + 0.05

    units = racks * nodes
    jobs = torch.zeros(count, window, len(JOB_FEATURES))
    jobs[:, :waiting] = uniform(count, waiting, len(JOB_FEATURES))
    groups = torch.tensor([[u, units + u // nodes, units + racks] for u in range(units)], dtype=torch.int32)
    mask = torch.zeros(count, window + 1, dtype=torch.int8)
    mask[:, :waiting] = (uniform(count, waiting) > 0.3).to(torch.int8)
    mask[:, -1] = 1
    return {
        "jobs": jobs,
        "units": uniform(count, units, len(UNIT_FEATURES)),
        "unit_groups": groups.expand(count, units, 3),
        "globals": uniform(count, len(GLOBAL_FEATURES)),
        "action_mask": mask,
    }


def place(seed: int, count: int, waiting: int = 5, **shape: int) -> Obs:
    """The same for the GPU agent."""
    obs = observe(seed, count, waiting, **shape)
    generator = torch.Generator().manual_seed(seed + 1)
    units = obs["units"].shape[1]
    obs["chosen"] = torch.rand(count, len(JOB_FEATURES), generator=generator)
    obs["action_mask"] = (torch.rand(count, units, generator=generator) > 0.3).to(torch.int8)
    obs["action_mask"][:, 0] = 1
    return obs


def build(kind: type, spec: NetworkSpec, seed: int = 0) -> torch.nn.Module:
    """A network whose every parameter is drawn, biases per distance and HOLD's token too."""
    torch.manual_seed(seed)
    net = kind(spec)
    for parameter in net.parameters():
        if parameter.ndim != 2:
            torch.nn.init.normal_(parameter, std=0.5)
    net.inputs.fit(place(seed + 7, 20, waiting=9))
    return net


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), waiting=st.integers(1, 32))
def test_a_permuted_queue_permutes_the_scores(spec: NetworkSpec, seed: int, waiting: int) -> None:
    net, obs = build(JobNet, spec), observe(seed, 3, waiting)
    order = torch.cat(
        [torch.randperm(waiting, generator=torch.Generator().manual_seed(seed)), torch.arange(waiting, 32)]
    )
    mixed = {**obs, "jobs": obs["jobs"][:, order]}
    mixed["action_mask"] = torch.cat([obs["action_mask"][:, order], obs["action_mask"][:, -1:]], dim=1)
    with torch.no_grad():
        plain, permuted = net(obs), net(mixed)
        assert close(permuted[:, :-1], plain[:, order]) and close(permuted[:, -1], plain[:, -1])
        critic = build(Critic, spec)
        assert close(critic(obs), critic(mixed))


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_equivalent_units_permute_the_scores(spec: NetworkSpec, seed: int) -> None:
    """Nodes of one rack change places, and so do whole racks: nothing else tells units apart."""
    net, obs = build(GpuNet, spec), place(seed, 3)
    drawn = torch.Generator().manual_seed(seed)
    racks = torch.randperm(2, generator=drawn)
    order = torch.cat([4 * rack + torch.randperm(4, generator=drawn) for rack in racks])
    mixed = {**obs, "units": obs["units"][:, order], "action_mask": obs["action_mask"][:, order]}
    with torch.no_grad():
        assert close(net(mixed), net(obs)[:, order])
        job, queue = build(JobNet, spec), observe(seed, 3, 7)
        assert close(job({**queue, "units": queue["units"][:, order]}), job(queue))


def test_units_of_another_rack_are_told_apart() -> None:
    """With the bias per distance, exchanging nodes across racks is no symmetry; without it, it is."""
    obs = place(3, 4)
    obs["action_mask"][:] = 1
    order = torch.tensor([4, 1, 2, 3, 0, 5, 6, 7])
    mixed = {**obs, "units": obs["units"][:, order]}
    with torch.no_grad():
        knows, ignores = build(GpuNet, SPECS[0]), build(GpuNet, SPECS[1])
        assert not close(knows(mixed), knows(obs)[:, order])
        assert close(ignores(mixed), ignores(obs)[:, order])


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), waiting=st.integers(0, 20), more=st.integers(1, 9))
def test_padding_never_leaks(spec: NetworkSpec, seed: int, waiting: int, more: int) -> None:
    """Padded units, whatever stands in them, and longer windows change no score of what is there."""
    job, gpu, critic = build(JobNet, spec), build(GpuNet, spec), build(Critic, spec)
    for obs, net in ((observe(seed, 3, waiting), job), (place(seed, 3, waiting), gpu)):
        rubbish = torch.randn(3, more, len(UNIT_FEATURES)) * 100
        padded = {**obs, "units": torch.cat([obs["units"], rubbish], dim=1)}
        padded["unit_groups"] = torch.cat([obs["unit_groups"], torch.full((3, more, 3), -1, dtype=torch.int32)], dim=1)
        if net is gpu:
            padded["action_mask"] = torch.nn.functional.pad(obs["action_mask"], (0, more))
        with torch.no_grad():
            assert close(net(padded)[:, : obs["action_mask"].shape[1]], net(obs))
            assert close(critic(padded), critic(obs))
    short, long = observe(seed, 3, waiting, window=20), observe(seed, 3, waiting, window=32)
    with torch.no_grad():
        a, b = job(short), job(long)
        assert close(a[:, :20], b[:, :20]) and close(a[:, -1], b[:, -1]) and bool((b[:, 20:-1] == MASKED).all())


@pytest.mark.parametrize("spec", SPECS)
def test_a_decision_does_not_depend_on_its_batch(spec: NetworkSpec) -> None:
    """Large batches are worked through by queue length; rows must come back in place."""
    net, critic = build(JobNet, spec), build(Critic, spec)
    parts = [observe(seed, 1, seed % 33) for seed in range(200)]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    with torch.no_grad():
        scores, values = net(whole), critic(whole)
        for i in (0, 1, 32, 33, 77, 199):
            assert close(net(parts[i])[0], scores[i]) and close(critic(parts[i])[0], values[i])


@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (4, 4), (16, 8), (3, 5)])
def test_the_same_weights_run_on_any_cluster(shape: tuple[int, int]) -> None:
    job, gpu = build(JobNet, SPECS[0]), build(GpuNet, SPECS[0])
    with torch.no_grad():
        queue, gang = observe(0, 2, 4, *shape), place(0, 2, racks=shape[0], nodes=shape[1])
        assert job(queue).shape == (2, 33)
        assert gpu(gang).shape == (2, shape[0] * shape[1])


def test_illegal_answers_are_never_the_best_and_have_no_probability() -> None:
    obs = place(1, 50)
    with torch.no_grad():
        logits = build(GpuNet, SPECS[0])(obs)
    assert bool((torch.softmax(logits, 1)[obs["action_mask"] == 0] == 0).all())
    drawn = sample(logits, torch.Generator().manual_seed(0))
    assert bool((obs["action_mask"].gather(1, drawn[:, None]) == 1).all())


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0, -1e9, 2.0]]).expand(40_000, 4)
    shares = torch.bincount(sample(logits, torch.Generator().manual_seed(1)), minlength=4) / 40_000
    assert torch.allclose(shares, torch.softmax(logits[0], 0), atol=0.01)


@pytest.mark.parametrize("waiting", [0, 1, 9, 32])
def test_attention_is_returned_and_padding_gets_none(waiting: int) -> None:
    job, gpu = build(JobNet, SPECS[0]), build(GpuNet, SPECS[0])
    queue, gang = observe(2, 3, waiting), place(2, 3)
    with torch.no_grad():
        logits, weights = job(queue, attention=True)
        assert close(logits, job(queue))
        assert set(weights) == {"jobs.0", "jobs.1", "units.0", "units.1"}
        for name, shown in weights.items():
            assert torch.allclose(shown.sum(-1), torch.ones(()), atol=1e-5)
            if name.startswith("units"):
                assert bool((shown[..., 8:] == 0).all())
        logits, weights = gpu(gang, attention=True)
        assert close(logits, gpu(gang)) and weights["units.0"].shape == (3, 2, 9, 9)


def test_without_hold_time_passes_only_when_nothing_can_start() -> None:
    spec = NetworkSpec(width=16, heads=2, layers=1, feedforward=16, hold=False)
    obs = observe(0, 2, 6)
    obs["action_mask"][0, :6] = torch.tensor([0, 1, 0, 0, 1, 0])
    obs["action_mask"][1, :6] = 0
    with torch.no_grad():
        logits = build(JobNet, spec)(obs)
    assert logits[0, -1] == MASKED and logits[1, -1] > MASKED


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["jobs", "units", "globals"])
def test_observations_that_are_no_numbers_are_refused(name: str, value: float) -> None:
    obs = observe(0, 4, 3)
    obs[name].view(4, -1)[2, 0] = value
    with pytest.raises(InputError, match=f"decision 2 is not finite.*|.*{name}"):
        check_finite(obs)


def test_seeds_fix_the_weights_and_leave_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (AgentPair.fresh(SPECS[0], ("job", "gpu"), seed) for seed in (5, 5, 6))
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.job is not None and same.job is not None and other.job is not None
    weights = [torch.cat([p.flatten() for p in pair.net("job").parameters()]) for pair in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    "field, value",
    [
        ("width", 0),
        ("width", 30),
        ("heads", 0),
        ("layers", 1.5),
        ("hold", 1),
        ("window", True),
        ("features_version", 99),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        NetworkSpec(**{field: value})  # type: ignore[arg-type]  # that is the point


def test_a_spec_survives_json() -> None:
    spec = NetworkSpec(width=32, hold=False)
    assert NetworkSpec.from_dict(spec.as_dict()) == spec
    with pytest.raises(InputError, match="depth"):
        NetworkSpec.from_dict({**spec.as_dict(), "depth": 3})
    with pytest.raises(InputError, match="width"):
        NetworkSpec.from_dict({k: v for k, v in spec.as_dict().items() if k != "width"})


def test_networks_are_small() -> None:
    for kind in (JobNet, GpuNet, Critic):
        assert sum(p.numel() for p in kind(NetworkSpec()).parameters()) < 200_000


def test_inputs_are_brought_to_one_scale_and_padding_does_not_count() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = Inputs(jobs=len(JOB_FEATURES), globals=len(GLOBAL_FEATURES))
    obs = observe(0, 40, 5, window=8)
    obs["jobs"][:, :5] = 0.5 + 0.1 * torch.randn(40, 5, len(JOB_FEATURES), generator=generator)
    obs["globals"][:] = torch.rand(40, len(GLOBAL_FEATURES), generator=generator)
    obs["globals"][:, 3] = 0.7  # never changes
    assert torch.equal(inputs(obs)["jobs"], obs["jobs"])  # left alone before fit
    inputs.fit(obs)
    scaled = inputs(obs)
    jobs = scaled["jobs"][:, :5].flatten(0, 1)
    torch.testing.assert_close(jobs.mean(0), torch.zeros(len(JOB_FEATURES)), atol=1e-5, rtol=0)
    torch.testing.assert_close(jobs.std(0), torch.ones(len(JOB_FEATURES)), atol=1e-3, rtol=0)
    obs["globals"][:, 3] = 0.8
    torch.testing.assert_close(inputs(obs)["globals"][:, 3], torch.full((40,), 0.1))
    obs["globals"][:, 0] = 1e9
    assert inputs(obs)["globals"].abs().max() == Inputs.MOST
    assert scaled["units"] is obs["units"] and set(scaled) == set(obs)

"""The two agents' networks and their critic.

Pre-norm transformer encoders without positions, since a queue and a cluster are sets. A batch is cut to its longest
queue, and large batches are worked through in parts of like length. Logits are those of a pointer network with
clipping, ``10 tanh(q k / sqrt(d))`` (Bello et al., Neural Combinatorial Optimization, 2016, section 3); the bias per
topological distance follows Graphormer (Ying et al., NeurIPS 2021, section 3.1.2).

Observation tensors, N decisions, K window jobs, U units (see ``observations``): ``jobs`` f4[N, K, F], ``units``
f4[N, U, Fu], ``unit_groups`` int[N, U, UNIT_GROUPS], ``globals`` f4[N, G], ``action_mask`` int[N, K + 1] or [N, U], and
``chosen`` f4[N, F] for the GPU agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, OUTLOOK_FEATURES, UNIT_FEATURES, UNIT_GROUPS
from attn_sched.agents.spec import NetworkSpec

MASKED = -1e9  # logit of what may not be chosen
CLIP = 10.0
_ESTIMATE = JOB_FEATURES.index("estimate")
# Batches of at least so many decisions are worked through in parts of like queue length.
_WORTH_SORTING = 128
_PARTS = 4
# Attention over a few units is quicker with their number padded to whole vector registers: 8 keys take three times as
# long as 16 (1,024 x 4 heads x 34 queries on AVX-512).
_KEYS = 16

Obs = dict[str, Tensor]
Weights = dict[str, Tensor]


class Inputs(nn.Module):
    """Features brought to mean 0 and deviation 1 on the decisions that ``fit`` was shown; until then left as they are.

    Many features span a small part of their range, and what tells two jobs apart is a small difference of those.

    Args:
        sizes: Number of features of each part of the observations that is scaled.
    """

    MOST = 6.0  # deviations; more says that a cluster or log is unlike all that was seen
    LEAST = 0.02  # deviation below which a feature is left at its scale: it hardly ever changed

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.parts = tuple(sizes)
        for name, size in sizes.items():
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))

    def forward(self, obs: Obs) -> Obs:
        """The observations with their parts scaled."""
        return {**obs, **{name: self._scaled(name, obs[name]) for name in self.parts if name in obs}}

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        mean, scale = self.get_buffer(f"{name}_mean"), self.get_buffer(f"{name}_scale")
        return ((values - mean) * scale).clamp(-self.MOST, self.MOST)

    @torch.no_grad()
    def fit(self, obs: Obs) -> None:
        """Take mean and deviation of each feature from decisions; padding does not count."""
        there = {"jobs": job_there, "units": unit_there}
        for name in self.parts:
            if name not in obs:
                continue
            rows = obs[name][there[name](obs)] if name in there else obs[name]
            if len(rows) < 2:  # they have no deviation
                continue
            deviation, mean = torch.std_mean(rows.double(), dim=0)
            changes = deviation > self.LEAST
            self.get_buffer(f"{name}_mean").copy_(mean)
            self.get_buffer(f"{name}_scale").copy_(torch.where(changes, 1.0 / deviation.clamp(min=self.LEAST), 1.0))


class Attention(nn.Module):
    """Multi-head attention of ``queries`` [N, T, d] over ``keys`` [N, S, d]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, queries: Tensor, keys: Tensor, bias: Tensor, show: bool = False) -> tuple[Tensor, Tensor | None]:
        """``bias`` f4[N, 1 or heads, 1 or T, S] is added to the scores. Returns [N, T, d], and weights if shown."""
        count, length, width = queries.shape
        q = self.query(queries).view(count, length, self.heads, -1).transpose(1, 2)
        kv = self.key_value(keys).view(count, keys.shape[1], 2, self.heads, -1)
        k, v = kv[:, :, 0].transpose(1, 2), kv[:, :, 1].transpose(1, 2)
        weights = None
        bias = bias.to(q.dtype)
        if show:
            weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias, dim=-1)
            mixed = weights @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).reshape(count, length, width)), weights


class Pooling(nn.Module):
    """What stands for attention where it is left out: every token learns the mean of the others, and nothing finer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, queries: Tensor, keys: Tensor, bias: Tensor, show: bool = False) -> tuple[Tensor, Tensor | None]:
        """As ``Attention``; of ``bias`` only which keys are padding is used, and there are no weights to show."""
        there = (bias[:, 0, 0, :] > 0.5 * MASKED).to(keys.dtype)[..., None]
        mean = (keys * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1.0)
        return self.out(mean).expand(-1, queries.shape[1], -1), None


class Block(nn.Module):
    """Self-attention, cross-attention to ``others`` where there are any, and a feed-forward layer, each pre-norm."""

    def __init__(self, spec: NetworkSpec, cross: bool) -> None:
        super().__init__()
        mix = Attention if spec.attention else Pooling
        self.self_norm = nn.LayerNorm(spec.width)
        self.self_attention = mix(spec.width, spec.heads)
        self.cross_norm = nn.LayerNorm(spec.width) if cross else None
        self.cross_attention = mix(spec.width, spec.heads) if cross else None
        self.feedforward = nn.Sequential(
            nn.LayerNorm(spec.width),
            nn.Linear(spec.width, spec.feedforward),
            nn.ReLU(),
            nn.Linear(spec.feedforward, spec.width),
        )

    def forward(
        self, tokens: Tensor, bias: Tensor, others: Tensor | None, others_bias: Tensor | None, show: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """``tokens`` [N, T, d], ``others`` [N, S, d]; returns the new tokens and both attention weights if shown."""
        normed = self.self_norm(tokens)
        mixed, own = self.self_attention(normed, normed, bias, show)
        tokens = tokens + mixed
        crossed = None
        if self.cross_attention is not None and self.cross_norm is not None:
            assert others is not None and others_bias is not None
            mixed, crossed = self.cross_attention(self.cross_norm(tokens), others, others_bias, show)
            tokens = tokens + mixed
        return tokens + self.feedforward(tokens), own, crossed


class Pointer(nn.Module):
    """Scores of tokens [N, T, d] for a query [N, d]: f4[N, T], at most ``CLIP`` in size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_norm, self.key_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, query: Tensor, tokens: Tensor) -> Tensor:
        """See the class."""
        q = self.query(self.query_norm(query))[:, :, None]
        scores = (self.key(self.key_norm(tokens)) @ q).squeeze(-1) / math.sqrt(query.shape[-1])
        return CLIP * torch.tanh(scores.float())


def job_there(obs: Obs) -> Tensor:
    """bool[N, K]: which rows of ``jobs`` are jobs; estimates are at least a second, so only padding has 0."""
    return obs["jobs"][..., _ESTIMATE] > 0


def unit_there(obs: Obs) -> Tensor:
    """bool[N, U]: which units are no padding."""
    return obs["unit_groups"][..., 0] >= 0


def _padding_bias(there: Tensor) -> Tensor:
    return torch.zeros(there.shape, dtype=torch.float32, device=there.device).masked_fill(~there, MASKED)[:, None, None]


def _like_lengths(run: Callable[[Obs], Tensor], obs: Obs) -> Tensor:
    """``run`` on observations cut to their longest queue; large batches in parts of like length."""
    lengths = job_there(obs).sum(1)
    if len(lengths) < _WORTH_SORTING:
        return run(_cut(obs, int(lengths.max())))
    order = torch.argsort(lengths)
    parts = []
    for rows in order.tensor_split(_PARTS):
        part = {name: value[rows] for name, value in obs.items()}
        parts.append(run(_cut(part, int(lengths[rows[-1]]))))
    whole = torch.cat(parts)
    return torch.zeros_like(whole).index_copy(0, order, whole)


def _cut(obs: Obs, jobs: int) -> Obs:
    return {**obs, "jobs": obs["jobs"][:, : max(jobs, 1)]}


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    return logits.masked_fill(mask == 0, MASKED)


class JobNet(nn.Module):
    """The job agent: self-attention over the queue, cross-attention to the units, a pointer from the global token."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        width = spec.width
        self.inputs = Inputs(jobs=len(JOB_FEATURES), units=len(UNIT_FEATURES), globals=len(GLOBAL_FEATURES))
        self.job_in = nn.Sequential(nn.Linear(len(JOB_FEATURES), width), nn.ReLU(), nn.Linear(width, width))
        self.unit_in = nn.Sequential(nn.Linear(len(UNIT_FEATURES), width), nn.ReLU(), nn.Linear(width, width))
        self.unit_norm = nn.LayerNorm(width)
        self.global_in = nn.Linear(len(GLOBAL_FEATURES), width)
        self.hold = nn.Parameter(torch.zeros(width))
        self.hold_in = nn.Linear(len(GLOBAL_FEATURES), width)
        self.blocks = nn.ModuleList(Block(spec, cross=True) for _ in range(spec.layers))
        self.pointer = Pointer(width)

    def forward(self, obs: Obs, attention: bool = False) -> Tensor | tuple[Tensor, Weights]:
        """Logits f4[N, K + 1], the last of HOLD, illegal ones ``MASKED``.

        With ``attention`` also the weights of each block: ``jobs.B`` f4[N, heads, T, T] over the tokens global, HOLD,
        jobs (T = longest queue + 2), and ``units.B`` f4[N, heads, T, U or more], none on units past U.
        """
        shown: Weights = {}
        if attention:
            scores = self._scores(_cut(obs, int(job_there(obs).sum(1).max())), shown)
        else:
            scores = _like_lengths(self._padded_scores, obs)
        logits = self._spread(scores, obs["jobs"].shape[1])
        mask = obs["action_mask"]
        if not self.spec.hold:
            # Without HOLD time passes only when nothing can start.
            can_start = (mask[:, :-1] != 0).any(1)
            mask = torch.cat([mask[:, :-1], torch.where(can_start, 0, mask[:, -1])[:, None].to(mask.dtype)], dim=1)
        logits = _masked(logits, mask)
        return (logits, shown) if attention else logits

    def _padded_scores(self, obs: Obs) -> Tensor:
        return self._spread(self._scores(obs, None), self.spec.window)

    @staticmethod
    def _spread(scores: Tensor, size: int) -> Tensor:
        """HOLD's score moved behind ``size`` places for jobs: [N, n + 1] to [N, size + 1]."""
        jobs = scores.shape[1] - 1
        if jobs >= size:
            return torch.cat([scores[:, :size], scores[:, -1:]], dim=1)
        return torch.cat([functional.pad(scores[:, :-1], (0, size - jobs), value=MASKED), scores[:, -1:]], dim=1)

    def _scores(self, obs: Obs, shown: Weights | None) -> Tensor:
        """f4[N, n + 1] for the n jobs of the (cut) queue and HOLD."""
        there = functional.pad(job_there(obs), (2, 0), value=True)
        obs = self.inputs(obs)
        globs = obs["globals"]
        tokens = torch.cat(
            [
                self.global_in(globs)[:, None],
                (self.hold + self.hold_in(globs))[:, None],
                self.job_in(obs["jobs"]),
            ],
            dim=1,
        )
        bias = _padding_bias(there)
        short = -obs["units"].shape[1] % _KEYS
        units = functional.pad(self.unit_norm(self.unit_in(obs["units"])), (0, 0, 0, short))
        units_bias = _padding_bias(functional.pad(unit_there(obs), (0, short), value=False))
        for number, block in enumerate(self.blocks):
            tokens, own, crossed = block(tokens, bias, units, units_bias, shown is not None)
            if shown is not None and own is not None:
                shown[f"jobs.{number}"], shown[f"units.{number}"] = own, crossed
        scores = self.pointer(tokens[:, 0], tokens[:, 1:])
        return torch.cat([scores[:, 1:], scores[:, :1]], dim=1)


class GpuNet(nn.Module):
    """The GPU agent: self-attention over the units with a bias per topological distance, for the job being placed."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        width = spec.width
        self.inputs = Inputs(units=len(UNIT_FEATURES), chosen=len(JOB_FEATURES), globals=len(GLOBAL_FEATURES))
        self.unit_in = nn.Sequential(nn.Linear(len(UNIT_FEATURES), width), nn.ReLU(), nn.Linear(width, width))
        self.query_in = nn.Sequential(
            nn.Linear(len(JOB_FEATURES) + len(GLOBAL_FEATURES), width), nn.ReLU(), nn.Linear(width, width)
        )
        self.condition = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(spec, cross=False) for _ in range(spec.layers))
        # One bias a block, head and distance: 0 (the same group) .. UNIT_GROUPS, and one to and from the query.
        self.distance = nn.Parameter(torch.zeros(spec.layers, spec.heads, UNIT_GROUPS + 2))
        self.pointer = Pointer(width)

    def forward(self, obs: Obs, attention: bool = False) -> Tensor | tuple[Tensor, Weights]:
        """Logits f4[N, U], illegal ones ``MASKED``.

        With ``attention`` also the weights of each block, ``units.B`` f4[N, heads, U + 1, U + 1] over the tokens query,
        units.
        """
        shown: Weights = {}
        obs = self.inputs(obs)
        query = self.query_in(torch.cat([obs["chosen"], obs["globals"]], dim=-1))
        tokens = torch.cat(
            [query[:, None], self.unit_in(obs["units"]) + self.condition(functional.relu(query))[:, None]], dim=1
        )
        there = functional.pad(unit_there(obs), (1, 0), value=True)
        padding = _padding_bias(there)
        apart = self._apart(obs["unit_groups"]) if self.spec.topology_bias and self.spec.attention else None
        for number, block in enumerate(self.blocks):
            bias = padding
            if apart is not None:
                bias = padding + self.distance[number][:, apart].transpose(0, 1)
            tokens, own, _ = block(tokens, bias, None, None, attention)
            if attention and own is not None:
                shown[f"units.{number}"] = own
        logits = _masked(self.pointer(tokens[:, 0], tokens[:, 1:]), obs["action_mask"])
        return (logits, shown) if attention else logits

    @staticmethod
    def _apart(groups: Tensor) -> Tensor:
        """int[N, U + 1, U + 1]: in how many groups two units differ; the query's row and column are their own class."""
        apart = (groups[:, :, None] != groups[:, None]).sum(-1)
        return functional.pad(apart, (1, 0, 1, 0), value=UNIT_GROUPS + 1)


class Critic(nn.Module):
    """The value of a state for each reward term, from the whole of it: queue, units, the job being placed, globals.

    In training it also sees the outlook of the episode, f4[N, O], which the agents do not (an asymmetric critic: Pinto
    et al., RSS 2018).

    Sets are pooled by mean and maximum after a layer per member (Zaheer et al., Deep Sets, NeurIPS 2017).
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        width = spec.critic_width

        def member(features: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

        self.inputs = Inputs(
            jobs=len(JOB_FEATURES),
            units=len(UNIT_FEATURES),
            chosen=len(JOB_FEATURES),
            globals=len(GLOBAL_FEATURES),
            outlook=len(OUTLOOK_FEATURES),
        )
        self.job, self.unit = member(len(JOB_FEATURES)), member(len(UNIT_FEATURES))
        plain = len(JOB_FEATURES) + len(GLOBAL_FEATURES) + len(OUTLOOK_FEATURES)
        self.value = nn.Sequential(
            nn.Linear(4 * width + plain, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
            nn.ReLU(),
            nn.Linear(width, len(TERMS)),
        )

    def forward(self, obs: Obs) -> Tensor:
        """f4[N, 3], in the order of ``rewards.TERMS``."""
        return _like_lengths(self._values, obs)

    def _values(self, obs: Obs) -> Tensor:
        jobs, units = job_there(obs), unit_there(obs)
        obs = self.inputs(obs)
        globs = obs["globals"]

        def known(name: str, size: int) -> Tensor:
            """A job being placed and an outlook are not always there."""
            return obs[name] if name in obs else globs.new_zeros(len(globs), size)

        plain = [known("chosen", len(JOB_FEATURES)), globs, known("outlook", len(OUTLOOK_FEATURES))]
        pooled = [
            *self._pool(self.job(obs["jobs"]), jobs),
            *self._pool(self.unit(obs["units"]), units),
        ]
        values: Tensor = self.value(torch.cat([*pooled, *plain], dim=-1))
        return values.float()

    @staticmethod
    def _pool(members: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and maximum; members are at least 0 (ReLU), so 0 stands for an empty set."""
        members = members * there[..., None]
        return members.sum(1) / there.sum(1, keepdim=True).clamp(min=1), members.amax(1)

"""Torch with one thread: on cores that others use too, a second one makes small networks many times slower."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

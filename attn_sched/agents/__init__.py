"""What the agents see and are rewarded for.

The environment, the batched runner and a deployed policy all build it here.
"""

from attn_sched.agents.observations import Observations
from attn_sched.agents.schema import FEATURES_VERSION, GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES

__all__ = ["FEATURES_VERSION", "GLOBAL_FEATURES", "JOB_FEATURES", "UNIT_FEATURES", "Observations"]

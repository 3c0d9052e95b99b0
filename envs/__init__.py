"""Environments: thin faces of the engine for agents of other libraries.

* ``envs.scheduling``: ``env`` and ``raw_env``, an AEC environment in PettingZoo's manner;
* ``envs.multi_agent``: ``SchedulingMultiAgentEnv`` for RLlib, registered by name;
* ``envs.single_agent``: ``SchedulingEnv``, the job agent over a placement rule, for Gymnasium.

All three play the same episodes (``envs.session``) and take the same arguments (``envs.settings``). Nothing is imported
here: each face needs its own library.
"""

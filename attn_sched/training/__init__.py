"""How the agents learn: rollouts on batches of clusters, imitation, and PPO in RLlib.

Nothing is imported here: the modules pull in torch or Ray, which most users of the package do without.
"""

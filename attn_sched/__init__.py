"""AttentiveSched: replay, compare and learn schedulers for GPU clusters.

The rooms of the house, lowest first: ``workload`` and ``cluster`` describe what is scheduled and where, ``simulator``
is the engine, ``agents`` turns its state into observations, ``policies`` names every rule, ``evaluation`` measures and
reports, ``cli`` is the command line. A room imports only from rooms below it.
"""

__version__ = "0.1.0"

"""Trained agents against all rules on test periods of real traces: the page docs/results.md.

    python -m benchmarks.results TRACES [--runs RUNS] [--write docs/results.md] [--cache FOLDER]

Modules, in the order in which they are used: ``plan`` says what is replayed, ``material`` cuts the windows,
``entrants`` finds the policies, ``replaying`` replays what is not in the ``cache``, ``scores`` compares, ``verdicts``
holds the comparison against what was wanted, ``tables`` and ``page`` write it down.
"""

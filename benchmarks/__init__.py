"""Timing scripts: each prints ratios measured in one run, so that a slow machine changes both sides."""

"""Experiments: entry points and search spaces."""

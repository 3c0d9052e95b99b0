"""Measuring schedules: metrics, intervals, comparisons and the HTML report."""

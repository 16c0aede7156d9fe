"""Measurements that are run by hand; see docs/benchmarks.md for what they gave."""

from __future__ import annotations

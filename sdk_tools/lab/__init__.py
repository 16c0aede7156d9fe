"""Comparing, measuring and reporting: what runs on devices is judged here."""

from __future__ import annotations

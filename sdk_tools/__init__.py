"""Syrinx SDK tools: build, run, verify and measure the engine. Start with `python -m sdk_tools doctor`."""

from __future__ import annotations

__version__ = "0.1.0"

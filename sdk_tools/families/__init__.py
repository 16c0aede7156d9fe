"""One folder a model family: stage names, conversion, the PyTorch reference. No family knows another."""

from __future__ import annotations

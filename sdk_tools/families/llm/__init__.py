"""Language models that libllama runs as they are: text in, text out."""

from __future__ import annotations

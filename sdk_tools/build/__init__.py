"""Builds the native engine: `driver.build_engine` makes one, `driver.ensure_engine` finds or makes one."""

from __future__ import annotations

"""Where an engine runs: `base.Device` is the interface, `host.HostDevice` this machine."""

from __future__ import annotations

"""Patroni replaces PostgreSQL under load. What the tests share is in tests/support: patroni.py (servers),
sales.py (clients and checks)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

"""Clock whose time a test sets explicitly."""

from __future__ import annotations

from terrarium.testing import ManualClock as ManualClock

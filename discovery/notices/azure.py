"""Scheduled events of Azure: eviction of spot machines, reboots, terminations.

Protocol: learn.microsoft.com/azure/virtual-machines/linux/scheduled-events. The list is that of the
whole set of machines, so only events that name this one count. A freeze is a pause of some seconds,
which training outlives.
"""

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from discovery.notices.notice import Notice, NoticeError, call

ENDPOINT = "http://169.254.169.254"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
TAKEN_BY = ("Preempt", "Terminate", "Reboot", "Redeploy")
FIRST_S = 10.0  # the first question switches the service on


class Azure:
    """Asks the instance metadata service."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self._endpoint = endpoint
        self._name = ""

    def look(self) -> Notice | None:
        """Return the notice if there is one."""
        if not self._name:
            self._name = self._get(NAME).strip()
        try:
            events: list[dict[str, Any]] = json.loads(self._get(EVENTS))["Events"]
        except (ValueError, KeyError, TypeError):
            raise NoticeError("Azure's list of events is not as documented") from None
        for event in events:
            if event.get("EventType") in TAKEN_BY and self._name in event.get("Resources", ()):
                return Notice(f"Azure: {event['EventType']} of {self._name}", _left_s(event.get("NotBefore", "")))
        return None

    def _get(self, path: str) -> str:
        response = call(self._endpoint, path, {"Metadata": "true"}, timeout_s=FIRST_S)
        if response.status != 200:
            raise NoticeError(f"Azure answered {response.status} for {path}")
        return response.body


def _left_s(not_before: str) -> float | None:
    """Return the seconds until then; an empty text says that it has begun."""
    if not not_before:
        return 0.0
    try:
        return max(0.0, (parsedate_to_datetime(not_before) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None

"""Preemption and host maintenance of Google Compute Engine.

Protocol: cloud.google.com/compute/docs/instances/create-use-spot (`instance/preempted`, 30 s before the
end) and .../monitor-plan-host-maintenance-event (`instance/maintenance-event`, an hour with GPUs).
"""

from discovery.notices.notice import Notice, NoticeError, call

ENDPOINT = "http://169.254.169.254"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
MAINTENANCE = "/computeMetadata/v1/instance/maintenance-event"
PREEMPTED_S = 30.0


class Gce:
    """Asks the metadata server."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self._endpoint = endpoint

    def look(self) -> Notice | None:
        """Return the notice if there is one."""
        if self._get(PREEMPTED) == "TRUE":
            return Notice("Google preempts this instance", PREEMPTED_S)
        if self._get(MAINTENANCE) == "TERMINATE_ON_HOST_MAINTENANCE":
            return Notice("Google will stop this instance for host maintenance")
        return None

    def _get(self, path: str) -> str:
        response = call(self._endpoint, path, {"Metadata-Flavor": "Google"})
        if response.status == 404:
            return ""
        if response.status != 200:
            raise NoticeError(f"Google answered {response.status} for {path}")
        return response.body.strip()

"""Spot interruptions and rebalance recommendations of Amazon EC2.

Protocol: docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, with the
session token of IMDSv2. 404 means that there is none.
"""

import json
from datetime import UTC, datetime

from discovery.notices.notice import Notice, NoticeError, call

ENDPOINT = "http://169.254.169.254"
TOKEN_S = 21600
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


class Ec2:
    """Asks the instance metadata service.

    Args:
        endpoint: where it answers.
        rebalance: heed recommendations too: the instance is at risk, but nobody has said when it goes.
    """

    def __init__(self, endpoint: str = ENDPOINT, *, rebalance: bool = False) -> None:
        self._endpoint = endpoint
        self._rebalance = rebalance
        self._token = ""

    def look(self) -> Notice | None:
        """Return the notice if there is one."""
        if (found := self._get(SPOT)) is not None:
            return _spot(found)
        if self._rebalance and self._get(REBALANCE) is not None:
            return Notice("EC2 recommends to rebalance: this instance is at risk")
        return None

    def _get(self, path: str) -> str | None:
        for _ in range(2):
            if not self._token:
                lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
                token = call(self._endpoint, "/latest/api/token", lifetime, "PUT")
                if token.status != 200:
                    raise NoticeError(f"EC2 gave no session token: status {token.status}")
                self._token = token.body
            response = call(self._endpoint, path, {"X-aws-ec2-metadata-token": self._token})
            if response.status == 200:
                return response.body
            if response.status == 404:
                return None
            if response.status != 401:
                raise NoticeError(f"EC2 answered {response.status} for {path}")
            self._token = ""  # it has expired
        raise NoticeError(f"EC2 takes no session token for {path}")


def _spot(body: str) -> Notice:
    try:
        told = json.loads(body)
        at = datetime.fromisoformat(told["time"])
        left_s = max(0.0, (at - datetime.now(UTC)).total_seconds())
        return Notice(f"EC2 will {told['action']} this spot instance at {told['time']}", left_s)
    except (ValueError, KeyError, TypeError):
        return Notice(f"EC2 will take this spot instance: {body[:100]}")

"""The library that applications embed: updates in order, at least once, across reconnects and restarts.

A `Subscription` runs one `Session` after another. A session reads one stream (`Seen` drops repeats), hands batches to
the application (`Delivery` knows what to do when it raises) and acknowledges; `Pulse` keeps its `Lease` meanwhile.
"""

from tailrace.subscriber.application import Application, StopSubscription, Token
from tailrace.subscriber.ledger import SubscriptionStatus
from tailrace.subscriber.policy import ErrorPolicy
from tailrace.subscriber.reaching import reached
from tailrace.subscriber.session import SubscriptionEnded
from tailrace.subscriber.streaming import stream
from tailrace.subscriber.subscription import Subscription, subscribe

__all__ = [
    "Application",
    "ErrorPolicy",
    "StopSubscription",
    "Subscription",
    "SubscriptionEnded",
    "SubscriptionStatus",
    "Token",
    "reached",
    "stream",
    "subscribe",
]

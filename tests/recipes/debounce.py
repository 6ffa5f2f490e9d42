"""Debounce: only the last change of a cart is delivered, 30 seconds after it."""

from confluent_kafka import Producer
from delay_router_client import deliver


def changed(producer: Producer, cart: str, content: str) -> None:
    """Replace the change of this cart that is still waiting."""
    headers = deliver(after="30s", deliver_id=f"cart-{cart}", replace=True)
    producer.produce("orders.delay", content, cart, headers=headers)

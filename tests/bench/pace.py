"""Sends records with a fixed delay at a constant rate, in a separate process."""

import time
from typing import Final

from tests.bench import child, workload

TICK_S: Final = 0.005
LINGER_MS: Final = 5


def send(bootstrap: str, topic: str, target: str, rate_per_s: float, seconds: float, delay_ms: int) -> None:
    """Send at ``rate_per_s``, and answer with the due time and the number of records of each tick.

    Records of a tick share a due time. A late tick sends the missing records; the answer has the total duration, which
    shows whether the rate was kept.
    """
    producer = workload.ordered_producer(bootstrap, LINGER_MS)
    total = int(rate_per_s * seconds)
    ticks: list[tuple[int, int]] = []
    sent = 0
    began_s = time.monotonic()
    while sent < total:
        wanted = min(int((time.monotonic() - began_s + TICK_S) * rate_per_s), total)
        due_ms = workload.now_ms() + delay_ms
        headers = workload.headers(due_ms, target)
        for _ in range(wanted - sent):
            workload.produce(producer, topic, headers)
        if wanted > sent:
            ticks.append((due_ms, wanted - sent))
            sent = wanted
        producer.poll(0)
        time.sleep(max(0.0, began_s + sent / rate_per_s - time.monotonic()))
    workload.flush(producer)
    child.answer(ticks=ticks, seconds=time.monotonic() - began_s)


if __name__ == "__main__":
    send(**child.arguments())

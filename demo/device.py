"""A device with a last will, as a process of its own to be killed: `python -m demo.device PORT CLIENT WILL_TOPIC`.

It prints `connected` and then does nothing.
"""

from __future__ import annotations

import sys

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion


def main() -> None:
    """Connect, report it, and serve the connection until the process is killed."""
    port, name, topic = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5)
    client.will_set(topic, "gone without goodbye", qos=1)

    def connected(_: object, data: object, flags: object, reason: object, properties: object) -> None:
        print("connected" if reason == "Success" else f"refused: {reason}", flush=True)

    client.on_connect = connected
    client.connect("127.0.0.1", port, keepalive=30)
    client.loop_forever()


if __name__ == "__main__":
    main()

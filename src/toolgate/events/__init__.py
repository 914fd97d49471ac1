"""Calls over an event stream, in both directions: `tool.requests` in and `tool.results` out, and tools that are sent out.

`stream` is the port, with an adapter each for NATS JetStream and Kafka; `signatures` and `messages` say what travels; `door`
takes calls in, `runner` sends them out. Calls run through the `Invoke` that the door is handed, and no other way.
"""

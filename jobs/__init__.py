"""The durable store: sole authority."""

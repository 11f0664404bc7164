"""Integrations that need an extra: Temporal and OpenTelemetry."""

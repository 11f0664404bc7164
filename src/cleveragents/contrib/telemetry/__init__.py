"""Traces of plans for an OpenTelemetry collector."""

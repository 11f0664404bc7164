"""The bridge between streams and graphs: one loop thread, admission, back-pressure, a bounded close."""

"""The bridge between streams and graphs: one loop thread, admission, back-pressure and a bounded close."""

"""The terminal app: conversation, board, plans and reviews in one window. A thin client of `Client`."""

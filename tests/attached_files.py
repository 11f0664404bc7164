"""A small image and a small PDF to attach."""

from __future__ import annotations

import struct

PNG = (
    b"\x89PNG\r\n\x1a\n"
    + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 1, 1, 8, 0, 0, 0, 0, 0x3A7E9B55)
    + b"\0\0\0\0IEND\xaeB`\x82"
)
PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Page >>\nendobj\n%%EOF\n"

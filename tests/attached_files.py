"""Small images and PDFs to attach."""

from __future__ import annotations

import struct
import zlib

PNG = (
    b"\x89PNG\r\n\x1a\n"
    + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 1, 1, 8, 0, 0, 0, 0, 0x3A7E9B55)
    + b"\0\0\0\0IEND\xaeB`\x82"
)


def pdf(*texts: str, packed: bool = False, extra: tuple[bytes, bytes] | None = None) -> bytes:
    """Return a PDF with a page for each text. `packed` compresses its objects and pages, as newer programs
    do. `extra` is the dictionary and the content of one more stream.
    """
    pages = [b"<< /Type /Page /Parent 2 0 R >>" for _ in texts]
    tree = b"<< /Type /Pages /Count %d >>" % len(texts)
    shown = [text.encode() if text.endswith("Tj") else b"BT (%s) Tj ET" % text.encode() for text in texts]
    streams = [(b"<< /Length 0 >>", one) for one in shown]
    objects = b"\n".join([tree, *pages])
    if packed:
        streams = [(b"<< /Filter /FlateDecode >>", zlib.compress(one)) for one in shown]
        streams.append((b"<< /Type /ObjStm /Filter /FlateDecode >>", zlib.compress(objects)))
        objects = b""
    streams += [extra] if extra is not None else []
    written = b"".join(b"9 0 obj\n%s\nstream\n%s\nendstream\nendobj\n" % one for one in streams)
    return b"%PDF-1.7\n" + objects + b"\n" + written + b"%%EOF\n"

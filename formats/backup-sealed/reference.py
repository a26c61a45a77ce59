"""Golden files of encrypted backup objects, written from formats/backup-sealed.md with OpenSSL's ciphers: python3 reference.py formats/backup-sealed

Shares no code with crates/repository. Needs python3-cryptography 44 or newer.
"""

import hashlib
import pathlib
import struct
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BLOCK = 65536
KEY = bytes(range(32))
SALT = bytes(range(0x40, 0x60))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def key_id(key):
    return hashlib.sha256(b"pgshrink cfs master key id 1" + key).digest()[:16]


def header(version=1, cipher=1, derivation=0, reserved=bytes(4), key=KEY, tail=bytes(28)):
    fields = b"pgshseal" + struct.pack("<HBB", version, cipher, derivation) + reserved + key_id(key) + SALT + tail
    return fields + struct.pack("<I", crc32c(fields))


def sealed(name, plaintext, head=None):
    head = head or header()
    info = b"pgshrink backup object key 1" + head + name
    cipher = AESGCMSIV(HKDF(algorithm=hashes.SHA256(), length=32, salt=SALT, info=info).derive(KEY))
    count = max(1, -(-len(plaintext) // BLOCK))
    out = head
    for number in range(count):
        nonce = struct.pack("<QB3x", number, number == count - 1)
        block = plaintext[number * BLOCK : (number + 1) * BLOCK]
        out += cipher.encrypt(nonce, block, b"")
    return out


def main():
    folder = pathlib.Path(sys.argv[1])
    golden = {
        "empty": sealed(b"one/empty", b""),
        "text": sealed(b"one/text", b"a marker that is found nowhere\n"),
        "boundary": sealed(b"one/boundary", bytes(i % 251 for i in range(BLOCK + 1))),
    }
    for name, content in golden.items():
        (folder / "golden" / f"{name}.sealed").write_bytes(content)
    text = golden["text"]
    flipped = bytearray(text)
    flipped[40] ^= 1
    errors = {
        "damaged-checksum": bytes(flipped),
        "damaged-cut": text[:-1],
        "damaged-cut-header": text[:50],
        "damaged-name": sealed(b"one/other", b"a marker"),
        "damaged-reserved": sealed(b"one/text", b"a marker", header(reserved=b"\1\0\0\0")),
        "damaged-version": sealed(b"one/text", b"a marker", header(version=0)),
        "locked": sealed(b"one/text", b"a marker", header(key=bytes(32))),
        "not-sealed": b"{}",
        "unsupported-version": sealed(b"one/text", b"a marker", header(version=2)),
        "unsupported-cipher": sealed(b"one/text", b"a marker", header(cipher=2)),
        "unsupported-derivation": sealed(b"one/text", b"a marker", header(derivation=1)),
    }
    for name, content in errors.items():
        (folder / "golden-errors" / f"{name}.sealed").write_bytes(content)


main()

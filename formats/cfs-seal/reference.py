"""Golden files of sealed records, written from formats/cfs-seal.md with OpenSSL's ciphers: python3 reference.py formats/cfs-seal

Shares no code with crates/cfs. Needs python3-cryptography 44 or newer.
"""

import hashlib
import pathlib
import struct
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id


def numbers(first, count):
    return bytes((first + i) % 256 for i in range(count))


def slot(master, key_id, stretch, container, data_key, nonce):
    head = bytes([1, 1 if stretch else 0, 0, 0]) + (stretch or bytes(24))
    associated = b"pgshrink cfs data key wrap 1" + container + key_id + head
    return head + nonce + AESGCMSIV(master).encrypt(nonce, data_key, associated) + bytes(8)


def golden(secret, stretch, container, data_key, associated, plaintext):
    if stretch:
        memory, passes = struct.unpack("<II", stretch[:8])
        master = Argon2id(salt=stretch[8:], length=32, iterations=passes, lanes=1, memory_cost=memory).derive(secret)
    else:
        master = bytes.fromhex(secret.decode())
    key_id = hashlib.sha256(b"pgshrink cfs master key id 1" + master).digest()[:16]
    nonce = numbers(0x90, 12)
    fields = {
        "secret": secret,
        "container": container,
        "key-id": key_id,
        "slot": slot(master, key_id, stretch, container, data_key, numbers(0x80, 12)),
        "associated": associated,
        "plaintext": plaintext,
        "sealed": nonce + AESGCMSIV(data_key).encrypt(nonce, plaintext, associated),
    }
    return "".join(f"{name} {value.hex()}\n" for name, value in fields.items())


def damaged(text, field, at, value):
    """One byte of one field replaced."""
    lines = dict(line.split(" ") for line in text.splitlines())
    content = bytearray.fromhex(lines[field])
    content[at : at + len(value)] = value
    lines[field] = content.hex()
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def main():
    folder, errors = pathlib.Path(sys.argv[1], "golden"), pathlib.Path(sys.argv[1], "golden-errors")
    container, data_key = numbers(0x20, 16), numbers(0x40, 32)
    header = bytes(4) + struct.pack("<IQ", 7, 5 | 0x0C << 56)  # block, version and mode
    key = numbers(0, 32).hex().encode()
    stretch = struct.pack("<II", 64, 3) + numbers(0x70, 16)
    passphrase = "correct horse battery staple".encode()
    page = b"a page's payload " * 90
    cases = {
        "page-key": golden(key, None, container, data_key, header + container, page),
        "page-passphrase": golden(passphrase, stretch, container, data_key, header + container, page),
        "root-key": golden(key, None, container, data_key, numbers(1, 242), numbers(3, 1000)),
        "short-key": golden(key, None, container, data_key, header + container, b"x"),
    }
    for name, text in cases.items():
        (folder / f"{name}.txt").write_text(text)
    by_key, by_passphrase = cases["page-key"], cases["page-passphrase"]
    refused = {
        "another-container": damaged(by_key, "container", 0, b"\x21"),
        "cipher-2": damaged(by_key, "slot", 0, b"\x02"),
        "derivation-9": damaged(by_key, "slot", 1, b"\x09"),
        "memory-4-tib": damaged(by_passphrase, "slot", 4, b"\xff\xff\xff\xff"),
        "record-moved": damaged(by_key, "associated", 4, b"\x08"),
        "reserved": damaged(by_key, "slot", 95, b"\x01"),
        "wrapped-key-flipped": damaged(by_key, "slot", 40, b"\x00"),
        "wrong-passphrase": damaged(by_passphrase, "secret", 0, b"k"),
    }
    for name, text in refused.items():
        (errors / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()

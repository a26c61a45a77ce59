#!/usr/bin/env python3
"""Writes formats/cfs/golden/leaves.cfs from formats/cfs.md alone, without the engine. Existing files are left as they are."""
import os
import struct
import zlib

ID = bytes(range(1, 17))
SEQUENCE = 9
DICTIONARY = 3000
GIVEN = 4000
MASK = (1 << 21) - 1


def crc(data, start=0):
    return zlib.crc32(data, start) & 0xFFFFFFFF


class File:
    def __init__(self):
        self.bytes = bytearray(12288)

    def record(self, what, version, mode, dictionary, payload):
        location = len(self.bytes) // 16
        body = struct.pack("<IQ", what, version | dictionary << 44 | mode << 56) + payload
        self.bytes += struct.pack("<I", crc(body, crc(ID) ^ location)) + body
        self.bytes += bytes(-len(self.bytes) % 16)
        return location, 16 + len(payload)

    def page(self, block, version, payload, mode=1, dictionary=0):
        location, size = self.record(block | len(payload) << 17, version, mode, dictionary, payload)
        return location | (size + 15) // 16 << 32 | (version & MASK) << 42

    def meta(self, kind, payload, sequence=SEQUENCE):
        location, size = self.record(len(payload) | 1 << 31, sequence, kind, 0, payload)
        return struct.pack("<II", location, size | (sequence & 0x7FF) << 21)


def zeros(version):
    return 2 << 32 | (version & MASK) << 42


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value):
    value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return (value << 1 ^ value >> 31) & 0xFFFFFFFF


def raw_leaf(number, entries):
    return struct.pack("<HHB", number, len(entries), 0) + b"".join(struct.pack("<Q", entry) for entry in entries)


def packed_leaf(number, entries):
    out = struct.pack("<HHB", number, len(entries), 1)
    location = units = tag = 0
    for entry in entries:
        new = entry & 0xFFFFFFFF, entry >> 32 & 1023, entry >> 42 & MASK
        out += varint(zigzag(new[0] - location - units)) + varint(zigzag(new[1] - units))
        out += varint((new[2] - tag - 1) & MASK)
        location, units, tag = new
    return out


def items(pairs):
    return b"".join(block.to_bytes(3, "little") + struct.pack("<Q", entry) for block, entry in pairs)


def root(sequence, flags, end, body):
    slot = bytearray(4096)
    slot[0:8] = b"pgshrcfs"
    struct.pack_into("<H", slot, 12, 2)
    slot[24:40] = ID
    struct.pack_into("<QIIII", slot, 40, sequence, 3, flags, 1000, 1024)
    struct.pack_into("<IIII", slot, 64, 1663, 5, 16384, 0)
    struct.pack_into("<QQ", slot, 84, 1 << 29, 2000)
    struct.pack_into("<QQQH", slot, 212, end, end, 0, GIVEN)
    struct.pack_into("<H", slot, 254, len(body))
    slot[256:256 + len(body)] = body
    struct.pack_into("<I", slot, 8, crc(bytes(slot[12:])))
    return slot


def leaves():
    file = File()
    entries = [zeros(1000 + block) for block in range(1000)]
    for block in range(0, 1000, 100):
        entries[block] = file.page(block, 5000 + block, b"leaf %d" % block)
    places = [file.meta(1, raw_leaf(0, entries[:512])), file.meta(1, packed_leaf(1, entries[512:]))]
    index = file.meta(2, struct.pack("<I", 2) + b"".join(places))
    delta = file.meta(3, struct.pack("<I", 1) + items([(5, file.page(5, 6005, b"delta 5"))]))
    dictionary = file.meta(4, struct.pack("<H", DICTIONARY) + bytes([9] * 16) + b"a dictionary of the reference", SEQUENCE - 1)
    newer = [(700, file.page(700, (1 << 21) + 7, b"root 700")), (701, file.page(701, 1 << 28, b"root 701", 9, DICTIONARY))]
    body = index + struct.pack("<HHI", 1, 1, len(newer)) + delta + struct.pack("<H", DICTIONARY) + dictionary + items(newer)
    end = len(file.bytes) // 16
    for at, slot in enumerate([root(9, 3, end, body), root(9, 3, end, body), root(8, 2, end, body)]):
        file.bytes[at * 4096:(at + 1) * 4096] = slot
    return bytes(file.bytes)


path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "leaves.cfs")
if not os.path.exists(path):
    with open(path, "wb") as out:
        out.write(leaves())

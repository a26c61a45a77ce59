"""Golden files of the egress meter, written from formats/egress.md: python3 reference.py formats/egress

Shares no code with crates/egress. Existing files are never changed.
"""

import json
import pathlib
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def encoded(value):
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def header(version=1, form="pgshrink-egress"):
    return encoded({"format": form, "version": version, "compression": "zstd:1,lz4:1", "written": "2026-11-27 10:00:00.000+00"})


def day(name, client, database, counts):
    """Estimates are for people: a reader computes its own, so these may be anything."""
    row = {"day": name, "client": client, "database": database, "bytes": 1, "compressed_bytes": 2, "to_server_bytes": 3}
    row |= {"to_server_compressed_bytes": 4, "sampled_bytes": 5, "cpu_s": 0.5, "counts": counts}
    return encoded(row)


def sealed(*lines, count=None, crc=None):
    body = b"".join(lines)
    count = len(lines) - 1 if count is None else count
    return body + encoded({"lines": count, "crc32c": crc or f"{crc32c(body):08x}"})


BULK = {"to_client": {"bulk": [1000, 400, 800, 100, 5000]}}
ALL = {
    "to_client": {"start": [1, 2, 3, 4, 5], "replies": [6, 7, 8, 9, 10], "bulk": [2**64 - 1, 0, 0, 0, 0], "replication": [11, 0, 0, 0, 0]},
    "to_server": {"start": [12, 13, 14, 15, 16]},
}
FIRST = day("2026-11-26", "10.0.0.5", "app", BULK)
GOOD = sealed(header(), FIRST)

golden = {
    "none": sealed(header()),
    "one": GOOD,
    "days": sealed(
        header(),
        FIRST,
        day("2026-11-27", "unix", 'we"ird\n\u00e4', ALL),
        day("2024-02-29", "2001:db8::1", "d" * 63, BULK),
        day("2026-11-27", "other", "other", {}),
    ),
}

errors = {
    "not-egress-empty": b"",
    "not-egress-toml": b"[server]\n",
    "not-egress-format": sealed(header(form="pgshrink-snapshot"), FIRST),
    "version-2": sealed(header(version=2), FIRST),
    "damaged-cut": GOOD[:-1],
    "damaged-cut-line": GOOD[: GOOD.rindex(b"{")],
    "damaged-flip": GOOD.replace(b"[1000,", b"[1001,").replace(b"[1000, ", b"[1001, "),
    "damaged-checksum-short": sealed(header(), FIRST, crc="1234567"),
    "damaged-count": sealed(header(), FIRST, count=2),
    "line-day": sealed(header(), day("2026-02-30", "c", "d", BULK)),
    "line-kind": sealed(header(), day("2026-11-27", "c", "d", {"to_client": {"bulky": [1, 2, 3, 4, 5]}})),
    "line-direction": sealed(header(), day("2026-11-27", "c", "d", {"sideways": {"bulk": [1, 2, 3, 4, 5]}})),
    "line-four-numbers": sealed(header(), day("2026-11-27", "c", "d", {"to_client": {"bulk": [1, 2, 3, 4]}})),
    "line-negative": sealed(header(), day("2026-11-27", "c", "d", {"to_client": {"bulk": [-1, 2, 3, 4, 5]}})),
    "line-long-client": sealed(header(), day("2026-11-27", "c" * 64, "d", BULK)),
    "line-no-client": sealed(header(), day("2026-11-27", "", "d", BULK)),
    "line-twice": sealed(header(), FIRST, FIRST),
}

root = pathlib.Path(sys.argv[1])
for folder, files in [("golden", golden), ("golden-errors", errors)]:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / folder / f"{name}.egress"
        if not path.exists():
            path.write_bytes(content)

#!/usr/bin/env python3
"""Reads checkpoints without Tierflow, by docs/src/container.md alone.
read_checkpoint.py FILE lists the regions; read_checkpoint.py FILE VERSION REGION writes one to standard output."""
import struct, sys

SECRET = bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
                       "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
                       "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
                       "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
M, P1, P2, P3 = 2**64 - 1, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5, Q1, Q2, Q3 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D

def xxh3(data):  # of more than 240 bytes
    words = lambda source, at: struct.unpack_from("<8Q", source, at)
    acc, count = [Q3, P1, P2, P3, P4, Q2, P5, Q1], (len(data) - 1) // 64
    def stripe(at, key):
        for i, (value, secret) in enumerate(zip(words(data, at), words(SECRET, key))):
            mixed = value ^ secret
            acc[i ^ 1] += value
            acc[i] = acc[i] + (mixed & 0xFFFFFFFF) * (mixed >> 32) & M
    for n in range(count):
        stripe(64 * n, 8 * (n % 16))
        if n % 16 == 15:
            for i, secret in enumerate(words(SECRET, 128)):
                a = acc[i] & M
                acc[i] = ((a ^ a >> 47 ^ secret) * Q1) & M
    stripe(len(data) - 64, 121)
    total, keys = len(data) * P1, words(SECRET, 11)
    for i in range(0, 8, 2):
        product = ((acc[i] & M) ^ keys[i]) * ((acc[i + 1] & M) ^ keys[i + 1])
        total = total + ((product & M) ^ (product >> 64)) & M
    total = ((total ^ total >> 37) * 0x165667919E3779F9) & M
    return total ^ total >> 32

def records(data):
    at = 0
    while at < len(data):
        if not any(data[at:at + 256]) and at % 4096:
            at += 256  # padding
            continue
        magic, form, head, payload, position, version = struct.unpack_from("<8sIIQQQ", data, at)
        block, count, kind = struct.unpack_from("<III", data, at + 80)
        if (magic, form in (1, 2, 3, 4), position) != (b"TIERFLOW", True, at) or at + head + payload > len(data):
            sys.exit(f"no whole record at byte {at}")
        sums = [*struct.unpack_from(f"<{-(-payload // block)}Q", data, at + 96 + 128 * count)]
        body, rest = data[at + head:at + head + payload], at + 96 + 128 * count + 8 * len(sums)  # rest: of long names
        parts = [data[at:at + head - 8]] + [body[i:i + block] for i in range(0, payload, block)]
        if [xxh3(part) for part in parts] != [*struct.unpack_from("<Q", data, at + head - 8)] + sums:
            sys.exit(f"damaged: the record at byte {at}")
        for row in range(at + 96, at + 96 + 128 * count, 128) if kind == 0 else ():
            start, length, more = struct.unpack_from("<QQ4xH", data, row)
            name, rest = data[row + 88:row + 128].rstrip(b"\0") + data[rest:rest + more], rest + more
            if data[row + 18] == 0:  # else it is part of what this one's regions are decoded to
                yield version, name.decode(), body[start:start + length]
        at += head + payload

wanted = [(v, n, c) for v, n, c in records(open(sys.argv[1], "rb").read()) if sys.argv[2:] in ([], [str(v), n])]
for version, name, content in wanted:
    sys.stdout.buffer.write(content if sys.argv[2:] else f"{version} {name} {len(content)}\n".encode())
sys.exit(0 if wanted or not sys.argv[2:] else "no such version or region")

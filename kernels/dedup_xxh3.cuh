// XXH3-128 with a secret of 192 bytes, bit for bit the hash of crates/dedup/src/hash.rs, and the sums made of
// digests. Three ways to the same function:
//
// - hash_pieces: one thread, a chunk of 32, 64 or 128 bytes in 16-byte pieces;
// - Accumulator: four threads, a chunk of 256 bytes or more, a 64-byte stripe at a time;
// - hash_any: one thread, any length and alignment. Slow; for the one short chunk at the end.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define P32_1 0x9E3779B1ull
#define P32_2 0x85EBCA77ull
#define P32_3 0xC2B2AE3Dull
#define P64_1 0x9E3779B185EBCA87ull
#define P64_2 0xC2B2AE3D27D4EB4Full
#define P64_3 0x165667B19E3779F9ull
#define P64_4 0x85EBCA77C2B2AE63ull
#define P64_5 0x27D4EB2F165667C5ull

struct Digest {
    u64 low, high;
};

// The secret as the host laid it out, so that every word is aligned: Secrets of crates/dedup/src/gpu/state.rs.
struct Secret {
    u64 word[24];       // the secret itself
    u64 last[8];        // from byte 121: the last stripe
    u64 merge_low[8];   // from byte 11
    u64 merge_high[8];  // from byte 117
};

__device__ __forceinline__ u64 mul_fold(u64 a, u64 b) { return (a * b) ^ __umul64hi(a, b); }

__device__ __forceinline__ u64 avalanche(u64 x) {
    x ^= x >> 37;
    x *= 0x165667919E3779F9ull;
    return x ^ (x >> 32);
}

// XXH64's last step; `stir` of hash.rs.
__device__ __forceinline__ u64 stir(u64 x) {
    x ^= x >> 33;
    x *= P64_2;
    x ^= x >> 29;
    x *= P64_3;
    return x ^ (x >> 32);
}

// What a digest at a place adds to a Sum.
__device__ __forceinline__ Digest term(Digest d, u64 place) {
    u64 n = place + 1;
    Digest t;
    t.low = stir(d.low + n * P64_1);
    t.high = stir(d.high ^ (n * P64_2));
    return t;
}

// What a word of metadata at a place adds to the metadata's sum.
__device__ __forceinline__ u64 word_term(u32 word, u64 place) { return stir((u64)word + (place + 1) * P64_1); }

__device__ __forceinline__ Digest finish_short(u64 lo, u64 hi, u64 len) {
    Digest d;
    d.low = avalanche(lo + hi);
    d.high = 0ull - avalanche(lo * P64_1 + hi * P64_4 + len * P64_2);
    return d;
}

__device__ __forceinline__ void mix32(u64 &lo, u64 &hi, ulonglong2 a, ulonglong2 b, u64 s0, u64 s1, u64 s2, u64 s3) {
    lo += mul_fold(a.x ^ s0, a.y ^ s1);
    lo ^= b.x + b.y;
    hi += mul_fold(b.x ^ s2, b.y ^ s3);
    hi ^= a.x + a.y;
}

// A chunk of 16 * PIECES bytes, PIECES being 2, 4 or 8; `piece(n)` is its n-th 16 bytes.
template <int PIECES, class Piece>
__device__ __forceinline__ Digest hash_pieces(Piece piece, const u64 *secret) {
    u64 lo = 16ull * PIECES * P64_1, hi = 0;
#pragma unroll
    for (int k = PIECES / 2 - 1; k >= 0; --k) {
        const u64 *s = secret + 4 * k;
        mix32(lo, hi, piece(k), piece(PIECES - 1 - k), s[0], s[1], s[2], s[3]);
    }
    return finish_short(lo, hi, 16ull * PIECES);
}

// Two of the eight accumulators of a chunk longer than 240 bytes: thread `part`, 0 to 3, of the four.
struct Accumulator {
    u64 a, b;

    __device__ __forceinline__ explicit Accumulator(int part) {
        a = part == 0 ? P32_3 : part == 1 ? P64_2 : part == 2 ? P64_4 : P64_5;
        b = part == 0 ? P64_1 : part == 1 ? P64_3 : part == 2 ? P32_2 : P32_1;
    }

    __device__ __forceinline__ void add(ulonglong2 data, u64 s0, u64 s1) {
        u64 k0 = data.x ^ s0, k1 = data.y ^ s1;
        a += data.y + (u64)(u32)k0 * (u64)(u32)(k0 >> 32);
        b += data.x + (u64)(u32)k1 * (u64)(u32)(k1 >> 32);
    }

    __device__ __forceinline__ void scramble(u64 s0, u64 s1) {
        a = (a ^ (a >> 47) ^ s0) * P32_1;
        b = (b ^ (b >> 47) ^ s1) * P32_1;
    }

    // This thread's share of both halves; the four shares are added up, and then finished.
    __device__ __forceinline__ Digest share(const Secret *s, int part) const {
        Digest d;
        d.low = mul_fold(a ^ s->merge_low[2 * part], b ^ s->merge_low[2 * part + 1]);
        d.high = mul_fold(a ^ s->merge_high[2 * part], b ^ s->merge_high[2 * part + 1]);
        return d;
    }

    static __device__ __forceinline__ Digest finish(Digest shares, u64 len) {
        Digest d;
        d.low = avalanche(shares.low + len * P64_1);
        d.high = avalanche(shares.high + ~(len * P64_2));
        return d;
    }
};

__device__ __forceinline__ u64 read_bytes(const u8 *p, int n) {
    u64 x = 0;
    for (int i = 0; i < n; ++i) x |= (u64)p[i] << (8 * i);
    return x;
}

__device__ __forceinline__ u64 swap32(u32 x) {
    return (x >> 24) | ((x >> 8) & 0xFF00u) | ((x << 8) & 0xFF0000u) | (x << 24);
}

__device__ __forceinline__ u64 swap64(u64 x) { return (swap32((u32)x) << 32) | swap32((u32)(x >> 32)); }

__device__ __forceinline__ void mix32_at(u64 &lo, u64 &hi, const u8 *a, const u8 *b, const u8 *s) {
    ulonglong2 x, y;
    x.x = read_bytes(a, 8), x.y = read_bytes(a + 8, 8);
    y.x = read_bytes(b, 8), y.y = read_bytes(b + 8, 8);
    mix32(lo, hi, x, y, read_bytes(s, 8), read_bytes(s + 8, 8), read_bytes(s + 16, 8), read_bytes(s + 24, 8));
}

__device__ inline Digest hash_up_to_16(const u8 *p, u32 len, const u64 *w) {
    Digest d;
    if (len > 8) {
        u64 in_lo = read_bytes(p, 8), in_hi = read_bytes(p + len - 8, 8);
        u64 x = in_lo ^ in_hi ^ (w[4] ^ w[5]);
        u64 lo = x * P64_1, hi = __umul64hi(x, P64_1);
        lo += (u64)(len - 1) << 54;
        in_hi ^= w[6] ^ w[7];
        hi += in_hi + (u64)(u32)in_hi * (P32_2 - 1);
        lo ^= swap64(hi);
        u64 low = lo * P64_2, high = __umul64hi(lo, P64_2) + hi * P64_2;
        d.low = avalanche(low), d.high = avalanche(high);
    } else if (len >= 4) {
        u64 in = read_bytes(p, 4) + (read_bytes(p + len - 4, 4) << 32);
        u64 x = in ^ (w[2] ^ w[3]);
        u64 m = P64_1 + ((u64)len << 2);
        u64 lo = x * m, hi = __umul64hi(x, m);
        hi += lo << 1;
        lo ^= hi >> 3;
        lo = (lo ^ (lo >> 35)) * 0x9FB21C651E98DF25ull;
        d.low = lo ^ (lo >> 28), d.high = avalanche(hi);
    } else {
        u32 c1 = p[0], c2 = p[len >> 1], c3 = p[len - 1];
        u32 lo = c1 << 16 | c2 << 24 | c3 | len << 8;
        u32 swapped = (u32)swap32(lo);
        u32 hi = swapped << 13 | swapped >> 19;
        d.low = stir((u64)lo ^ (u64)((u32)w[0] ^ (u32)(w[0] >> 32)));
        d.high = stir((u64)hi ^ (u64)((u32)w[1] ^ (u32)(w[1] >> 32)));
    }
    return d;
}

// `p` is aligned to 8 bytes, `len` at least 1.
__device__ __noinline__ Digest hash_any(const u8 *p, u32 len, const Secret *secret) {
    const u8 *s = (const u8 *)secret->word;
    if (len <= 16) return hash_up_to_16(p, len, secret->word);
    u64 lo = len * P64_1, hi = 0;
    if (len <= 128) {
        for (int k = (int)((len - 1) / 32); k >= 0; --k) mix32_at(lo, hi, p + 16 * k, p + len - 16 * (k + 1), s + 32 * k);
        return finish_short(lo, hi, len);
    }
    if (len <= 240) {
        u32 rounds = len / 32;
        for (u32 k = 0; k < 4; ++k) mix32_at(lo, hi, p + 32 * k, p + 32 * k + 16, s + 32 * k);
        lo = avalanche(lo), hi = avalanche(hi);
        for (u32 k = 4; k < rounds; ++k) mix32_at(lo, hi, p + 32 * k, p + 32 * k + 16, s + 3 + 32 * (k - 4));
        mix32_at(lo, hi, p + len - 16, p + len - 32, s + 103);
        return finish_short(lo, hi, len);
    }
    Digest shares = {0, 0};
    u32 stripes = (len - 1) / 64;
    for (int part = 0; part < 4; ++part) {
        Accumulator acc(part);
        const u64 *words = (const u64 *)p + 2 * part;
        for (u32 n = 0; n < stripes; ++n) {
            ulonglong2 data;
            data.x = words[8 * n], data.y = words[8 * n + 1];
            u32 at = n % 16 + 2 * part;
            acc.add(data, secret->word[at], secret->word[at + 1]);
            if (n % 16 == 15) acc.scramble(secret->word[16 + 2 * part], secret->word[17 + 2 * part]);
        }
        const u8 *last = p + len - 64 + 16 * part;
        ulonglong2 data;
        data.x = read_bytes(last, 8), data.y = read_bytes(last + 8, 8);
        acc.add(data, secret->last[2 * part], secret->last[2 * part + 1]);
        Digest share = acc.share(secret, part);
        shares.low += share.low, shares.high += share.high;
    }
    return Accumulator::finish(shares, len);
}

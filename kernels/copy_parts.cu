// Many short copies within the memory that one device reaches, by one launch. The list of them is the kernel's parameter:
// it needs no memory of its own, and is the driver's as soon as the launch is enqueued. Tiles of each copy go to blocks;
// offsets and lengths are any.
//
// The layout of the list is that of crates/device/src/cuda/parts.rs.

#include <stdint.h>

#define THREADS 256u
#define TILE_BYTES (32u << 10)
#define MOST 1360u

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

struct Part {
    u64 from, to;
    u32 bytes;
    u32 first;  // tiles of the parts before
};

struct Parts {
    u32 count;
    u32 unused;
    Part parts[MOST];
};

extern "C" __global__ void __launch_bounds__(THREADS) copy_parts(const __grid_constant__ Parts list) {
    // The last part whose first tile is not behind this one.
    u32 low = 0, high = list.count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (list.parts[middle].first <= blockIdx.x) low = middle;
        else high = middle;
    }
    const u32 t = threadIdx.x, start = (blockIdx.x - list.parts[low].first) * TILE_BYTES;
    const u8 *from = (const u8 *)list.parts[low].from + start;
    u8 *to = (u8 *)list.parts[low].to + start;
    const u32 bytes = min(list.parts[low].bytes - start, TILE_BYTES);

    // Whole vectors of the target, and the bytes before and behind them.
    u32 before = min((u32)(-(u64)to & 15), bytes);
    u32 vectors = (bytes - before) / 16;
    const u32 odd = (u32)(u64)(from + before) & 3;
    if (odd != 0) {
        // Vectors are put together from aligned words, which reach beyond the first and the last.
        if (vectors < 3) vectors = 0;
        else before += 16, vectors -= 2;
    }
    const u32 behind = before + vectors * 16;
    for (u32 n = t; n < before; n += THREADS) to[n] = from[n];
    for (u32 n = behind + t; n < bytes; n += THREADS) to[n] = from[n];

    const u8 *source = from + before;
    uint4 *target = (uint4 *)(to + before);
    if (((u64)source & 15) == 0) {
#pragma unroll 4
        for (u32 n = t; n < vectors; n += THREADS) target[n] = ((const uint4 *)source)[n];
    } else if (odd == 0) {
        const u32 *words = (const u32 *)source;
#pragma unroll 4
        for (u32 n = t; n < vectors; n += THREADS) {
            target[n] = make_uint4(words[4 * n], words[4 * n + 1], words[4 * n + 2], words[4 * n + 3]);
        }
    } else {
        const u32 *words = (const u32 *)(source - odd);
        const u32 shift = odd * 8;
#pragma unroll 2
        for (u32 n = t; n < vectors; n += THREADS) {
            u32 a = words[4 * n], b = words[4 * n + 1], c = words[4 * n + 2], d = words[4 * n + 3], e = words[4 * n + 4];
            target[n] = make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift),
                                   __funnelshift_r(c, d, shift), __funnelshift_r(d, e, shift));
        }
    }
}

// Restoring a version from differences in device memory: first where each chunk is, then all chunks at once, so each
// byte moves once however long the history. The twin of crates/dedup/src/chain/owners.rs and restore.rs.

#include "dedup_state.cuh"

#define THREADS 256u

// Chunks side by side and where their bytes are; Move of crates/dedup/src/gpu/restore.rs.
struct Move {
    u32 before;  // chunks of the moves before this one
    u32 chunk;   // the first chunk
    u64 source;  // the address of its bytes, plus 1 if the others' are there too
};

// What one difference says of where chunks are. Differences come oldest first.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_own(const Move *moves, u32 count, u32 chunks, u32 shift, u64 *owners) {
    for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < chunks; n += gridDim.x * THREADS) {
        u32 low = 0, high = count;
        while (high - low > 1) {
            u32 middle = low + (high - low) / 2;
            if (moves[middle].before <= n) low = middle;
            else high = middle;
        }
        Move move = moves[low];
        u64 step = move.source & 1 ? 0 : (u64)(n - move.before) << shift;
        owners[move.chunk + (n - move.before)] = (move.source & ~1ull) + step;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) dedup_scatter(const u64 *owners, u8 *out, u64 len, u32 shift) {
    const u32 lane = lane_id(), chunk_size = 1u << shift;
    const u32 span = min(2048u, WARP * chunk_size);
    const u64 spans = (len + span - 1) / span, stride = (u64)gridDim.x * (THREADS / WARP);
    for (u64 n = (u64)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP; n < spans; n += stride) {
        u64 start = n * span;
        u32 here = (u32)(len - start < span ? len - start : span);
        u32 whole = here / 16;
        u64 first = start >> shift, offset = start & (chunk_size - 1);
        u32 chunks = (u32)(((start + here - 1) >> shift) - first) + 1;
        u64 owner = lane < chunks ? owners[first + lane] : 0;
        auto from = [&](u32 at) {
            u64 in_chunks = offset + at;
            u64 source = __shfl_sync(ALL, owner, (u32)(in_chunks >> shift) % WARP);
            return (const u8 *)source + (in_chunks & (chunk_size - 1));
        };
#pragma unroll 4
        for (u32 base = 0; base < whole; base += WARP) {
            u32 unit = base + lane;
            const u8 *source = from((unit < whole ? unit : whole - 1) * 16);
            if (unit < whole) *(ulonglong2 *)(out + start + unit * 16ull) = *(const ulonglong2 *)source;
        }
        const u8 *rest = from(whole * 16 < here ? whole * 16 : 0);
        for (u32 k = lane; k < here - whole * 16; k += WARP) out[start + whole * 16 + k] = rest[k];
    }
}

// The sum that the leaf pass made of a restored checkpoint, to host memory; and all as before.
extern "C" __global__ void dedup_summed(State *st, Digest *sum) {
    Digest none = {0, 0};
    *sum = st->content;
    st->content = none;
    Result empty = {};
    st->result = empty;
    st->full = 0;
    for (u32 n = 0; n < 8; ++n) st->tickets[n] = 0;
}

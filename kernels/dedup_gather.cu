// The stored chunks, side by side, to where the difference is to be: host memory that the GPU writes across the bus,
// or memory of its own. Work is shared out by bytes of the payload, so it does not matter where the chunks come from.

#include "dedup_state.cuh"

#define THREADS 256u
#define SPAN 2048u  // bytes that a warp copies at a time

// The last entry of a non-decreasing list that is not larger than `rank`; the first one is 0.
template <class Get>
__device__ __forceinline__ u32 last_up_to(u32 count, u32 rank, Get get) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = low + (high - low) / 2;
        if (get(middle) <= rank) low = middle;
        else high = middle;
    }
    return low;
}

// The chunk that has so many stored ones before it.
__device__ __forceinline__ u32 stored_chunk(const State *st, u32 rank) {
    u32 tile = last_up_to(st->tiles, rank, [&](u32 n) { return st->tile_first[n]; });
    rank -= st->tile_first[tile];
    u32 start = tile * TILE_WORDS, words = min(TILE_WORDS, st->words - start);
    u32 word = start + last_up_to(words, rank, [&](u32 n) { return (u32)(st->ranks[start + n] >> 32); });
    rank -= (u32)(st->ranks[word] >> 32);
    return word * WARP + nth_bit(st->first[word], rank);
}

// Copies bytes that start at multiples of 16, with all lanes of the warp.
__device__ __forceinline__ void copy_tail(u8 *to, const u8 *from, u32 bytes) {
    for (u32 n = lane_id(); n < bytes; n += WARP) to[n] = from[n];
}

extern "C" __global__ void __launch_bounds__(THREADS) dedup_gather(State *st, const u8 *data, u8 *out, Result *report) {
    const Result *result = &st->result;
    const u32 lane = lane_id(), shift = st->shift, chunk_size = 1u << shift;
    const u64 bytes = result->payload_bytes;
    const bool is_full = result->stored == FULL;
    u64 metadata = result->stored == BASIC ? st->words * 4ull : result->first * 4ull + result->shifted * 12ull;
    u8 *payload = out + (HEADER_BYTES + metadata + 63) / 64 * 64;

    // Spans of whole chunks, of no more than one for each lane; or parts of one chunk.
    const u32 span = is_full ? SPAN : min(SPAN, WARP * chunk_size);
    const u64 spans = (bytes + span - 1) / span, stride = (u64)gridDim.x * (THREADS / WARP);
    for (u64 n = (u64)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP; n < spans; n += stride) {
        u64 start = n * span;
        u32 here = (u32)(bytes - start < span ? bytes - start : span);
        u32 whole = here / 16;
        u32 chunk = 0;
        u64 first_rank = start >> shift, offset = start & (chunk_size - 1);
        if (!is_full) {
            u32 ranks = (u32)(((start + here - 1) >> shift) - first_rank) + 1;
            if (lane < ranks) chunk = stored_chunk(st, (u32)first_rank + lane);
        }
        // Where a byte of the span comes from; every lane asks, for it may be another that knows.
        auto from = [&](u32 at) {
            if (is_full) return data + start + at;
            u64 in_chunks = offset + at;
            u32 owner = __shfl_sync(ALL, chunk, (u32)(in_chunks >> shift) % WARP);
            return data + ((u64)owner << shift) + (in_chunks & (chunk_size - 1));
        };
#pragma unroll 4
        for (u32 base = 0; base < whole; base += WARP) {
            u32 unit = base + lane;
            const u8 *source = from(min(unit, whole - 1) * 16);
            if (unit < whole) *(ulonglong2 *)(payload + start + unit * 16ull) = *(const ulonglong2 *)source;
        }
        const u8 *rest = from(whole * 16 < here ? whole * 16 : 0);
        copy_tail(payload + start + whole * 16, rest, here - whole * 16);
    }

    if (!is_last_block(&st->tickets[4]) || threadIdx.x != 0) return;
    Result done = st->result;
    done.content = st->content, done.parent = st->parent;
    if (is_full) {
        done.payload = done.content;
        done.metadata = 0, done.first = 0, done.shifted = 0;
    }
    done.live = st->live;
    done.evicted = st->kept_from;
    *report = done;
    // For the next checkpoint.
    st->parent = st->content;
    Result none = {};
    st->result = none;
    st->sampled_new = 0, st->full = 0, st->kept_from = 0;
    for (u32 n = 0; n < 8; ++n) st->tickets[n] = 0;
}

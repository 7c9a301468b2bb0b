// Comparing bytes where digests match: with the checkpoint before, with the chunk that the record of hashes names, and
// with the chunk of the same checkpoint that owns the digest. The twin of crates/dedup/src/encode/verify.rs, which keeps
// all differences; here the record's slots have their chunks' bytes beside them. A chunk whose bytes are others is stored
// at its own place, and the record keeps the one that it had.

#include "dedup_state.cuh"

#define THREADS 256u

// Whether so many bytes are the same; all lanes of a warp ask together. Both start at multiples of 16.
__device__ __forceinline__ bool same_bytes(const u8 *a, const u8 *b, u32 bytes) {
    const u32 lane = lane_id(), pieces = bytes / 16;
    bool differs = false;
    for (u32 n = lane; n < pieces; n += WARP) {
        ulonglong2 x = ((const ulonglong2 *)a)[n], y = ((const ulonglong2 *)b)[n];
        differs |= x.x != y.x || x.y != y.y;
    }
    for (u32 n = pieces * 16 + lane; n < bytes; n += WARP) differs |= a[n] != b[n];
    return !__any_sync(ALL, differs);
}

__device__ __forceinline__ void copy_bytes(u8 *to, const u8 *from, u32 bytes) {
    const u32 lane = lane_id(), pieces = bytes / 16;
    for (u32 n = lane; n < pieces; n += WARP) ((ulonglong2 *)to)[n] = ((const ulonglong2 *)from)[n];
    for (u32 n = pieces * 16 + lane; n < bytes; n += WARP) to[n] = from[n];
}

// Calls f(word, bit, chunk, is_changed) for every chunk, a warp for each word of 32.
template <class F>
__device__ __forceinline__ void each_chunk(const State *st, F f) {
    const u32 words = st->words, stride = gridDim.x * (THREADS / WARP);
    for (u32 word = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP; word < words; word += stride) {
        u32 changed = st->changed[word];
        for (u32 bit = 0; bit < WARP; ++bit) {
            u32 chunk = word * WARP + bit;
            if (chunk < st->count) f(word, bit, chunk, (changed >> bit & 1) != 0);
        }
    }
}

// What stayed against the checkpoint before, and what the record has against its bytes.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_verify(State *st, const u8 *data, u32 ordinal, u32 is_first) {
    const u32 lane = lane_id(), shift = st->shift;
    const bool has_sources = st->pool && !st->full;
    u64 collisions = 0, changed = 0;
    each_chunk(st, [&](u32 word, u32 bit, u32 chunk, bool is_changed) {
        u64 slot = 0;
        u32 bytes = chunk_bytes(st, chunk);
        bool is_same = true;
        const u8 *other = st->previous + ((u64)chunk << shift);
        if (is_changed) {
            if (!has_sources || st->sources[chunk] == UNKNOWN) return;
            u64 at = find_slot(st, load(st->digests + chunk), &slot);
            if (at == UNKNOWN) return;
            other = st->pool + (at << shift);
            is_same = chunk_bytes(st, (u32)slot) == bytes;
        } else if (is_first) {
            return;
        }
        is_same = is_same && same_bytes(data + ((u64)chunk << shift), other, bytes);
        if (is_same || lane != 0) return;
        if (st->sources) st->sources[chunk] = pack(ordinal, chunk);
        collisions += 1;
        if (is_changed) return;
        st->changed[word] |= 1u << bit;
        changed += 1;
    });
    add_to(&st->result.collisions, collisions);
    add_to(&st->result.changed, changed);
}

// Duplicates within the checkpoint against their owner; the owners' bytes go beside their slots.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_verify_own(State *st, const u8 *data, u32 ordinal) {
    if (st->full) return;
    const u32 lane = lane_id(), shift = st->shift;
    u64 collisions = 0;
    each_chunk(st, [&](u32, u32, u32 chunk, bool is_changed) {
        if (!is_changed) return;
        u64 source = st->sources[chunk], slot = 0;
        const u8 *bytes = data + ((u64)chunk << shift);
        if (source == UNKNOWN) {
            u64 at = find_slot(st, load(st->digests + chunk), &slot);
            if (at != UNKNOWN) copy_bytes(st->pool + (at << shift), bytes, chunk_bytes(st, chunk));
        } else if (source & SLOT) {
            u32 owner = (u32)st->owners[source & ~SLOT], length = chunk_bytes(st, chunk);
            bool is_same = chunk_bytes(st, owner) == length;
            is_same = is_same && same_bytes(bytes, data + ((u64)owner << shift), length);
            if (is_same || lane != 0) return;
            st->sources[chunk] = pack(ordinal, chunk);
            collisions += 1;
        }
    });
    add_to(&st->result.collisions, collisions);
}

// The checkpoint, for the next one to be compared with.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_keep(const State *st, const u8 *data) {
    u64 pieces = st->len / 16, first = (u64)blockIdx.x * THREADS + threadIdx.x;
    for (u64 n = first; n < pieces; n += (u64)gridDim.x * THREADS) ((ulonglong2 *)st->previous)[n] = ((const ulonglong2 *)data)[n];
    if (first < st->len % 16) st->previous[pieces * 16 + first] = data[pieces * 16 + first];
}

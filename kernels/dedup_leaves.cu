// The leaf pass: every chunk is hashed and compared with the checkpoint before. The twin of
// crates/dedup/src/encode/leaves.rs, but for the looking up, which dedup_record.cu does for all that changed at once: the
// memory's latency would stop this stream of bytes.
//
// It moves a checkpoint's bytes once, 16 bytes of digest for each chunk, and one bit; only what changed costs more.

#include "dedup_state.cuh"

#define THREADS 128u
#define WARPS (THREADS / WARP)

__device__ __forceinline__ void copy_async(void *shared, const void *global) {
    u32 to = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the newest group have arrived.
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// What a thread has found so far.
struct Tally {
    Digest content;
    u64 changed;
};

// A chunk's digest is known: did it change?
__device__ __forceinline__ bool is_changed(State *st, Tally &tally, u32 chunk, Digest digest, Digest before, bool is_first) {
    if (!is_first && same(before, digest)) return false;
    Digest added = term(digest, chunk);
    tally.content.low += added.low, tally.content.high += added.high;
    if (!is_first) {
        Digest removed = term(before, chunk);
        tally.content.low -= removed.low, tally.content.high -= removed.high;
    }
    // Who only wants the content's sum keeps no digests.
    if (st->digests) store(st->digests + chunk, digest);
    tally.changed += 1;
    return true;
}

__device__ inline void finish_leaves(State *st, const u8 *data, Tally tally, bool is_first) {
    add_to(&st->content.low, tally.content.low);
    add_to(&st->content.high, tally.content.high);
    add_to(&st->result.changed, tally.changed);
    if (!is_last_block(&st->tickets[0]) || threadIdx.x != 0) return;

    // The one chunk that may be short is left to the end, or every thread would keep registers for it.
    u32 chunk = st->count - 1, bytes = chunk_bytes(st, chunk);
    if (bytes != 1u << st->shift) {
        Tally last = {{0, 0}, 0};
        Digest digest = hash_any(data + ((u64)chunk << st->shift), bytes, &st->secret), before = {0, 0};
        if (!is_first) before = load(st->digests + chunk);
        if (is_changed(st, last, chunk, digest, before, is_first)) atomicOr(st->changed + chunk / 32, 1u << chunk % 32);
        atomicAdd(&st->content.low, last.content.low);
        atomicAdd(&st->content.high, last.content.high);
        atomicAdd(&st->result.changed, last.changed);
    }
    if (st->full || st->method == FULL) {
        st->full = 1;
        st->result.stored = FULL;
        st->result.payload_bytes = st->len;
    }
}

// Chunks of 16 * PIECES bytes, one thread each. A warp brings 32 of them into shared memory, the next 32 meanwhile;
// the pieces are stored where the threads that read them one chunk apart meet no bank twice.
template <int PIECES>
__device__ __forceinline__ void leaves(State *st, const u8 *data, u32 is_first) {
    __shared__ ulonglong2 stage[WARPS][2][WARP * PIECES];
    const u32 lane = lane_id(), warp = threadIdx.x / WARP;
    const u32 words = st->words, stride = gridDim.x * WARPS;
    const u64 len = st->len, whole = len / (16 * PIECES);
    const Digest *digests = st->digests;
    u64 secret[2 * PIECES];
#pragma unroll
    for (int k = 0; k < 2 * PIECES; ++k) secret[k] = st->secret.word[k];

    auto slot = [](u32 piece) { return piece ^ ((piece >> 3) & 7); };
    auto bring = [&](u32 word, u32 half) {
        if (word < words) {
            u64 start = (u64)word * (WARP * PIECES * 16);
#pragma unroll
            for (u32 k = 0; k < PIECES; ++k) {
                u32 piece = k * WARP + lane;
                u64 at = start + piece * 16ull;
                if (at + 16 <= len) copy_async(&stage[warp][half][slot(piece)], data + at);
            }
        }
        commit_copies();
    };
    auto digest_before = [&](u32 word) {
        u64 chunk = (u64)word * WARP + lane;
        Digest none = {0, 0};
        return !is_first && word < words && chunk < whole ? load(digests + chunk) : none;
    };

    Tally tally = {{0, 0}, 0};
    u32 word = blockIdx.x * WARPS + warp, half = 0;
    bring(word, half);
    Digest before = digest_before(word);
    for (; word < words; word += stride, half ^= 1) {
        bring(word + stride, half ^ 1);
        Digest before_next = digest_before(word + stride);
        wait_copies();
        __syncwarp();
        u32 chunk = word * WARP + lane;
        bool changed = false;
        if (chunk < whole) {
            const ulonglong2 *staged = stage[warp][half];
            Digest digest = hash_pieces<PIECES>([&](int k) { return staged[slot(lane * PIECES + k)]; }, secret);
            changed = is_changed(st, tally, chunk, digest, before, is_first);
        }
        u32 bits = __ballot_sync(ALL, changed);
        if (lane == 0) st->changed[word] = bits;
        before = before_next;
    }
    finish_leaves(st, data, tally, is_first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_leaves_32(State *st, const u8 *data, u32 is_first) {
    leaves<2>(st, data, is_first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_leaves_64(State *st, const u8 *data, u32 is_first) {
    leaves<4>(st, data, is_first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 5) dedup_leaves_128(State *st, const u8 *data, u32 is_first) {
    leaves<8>(st, data, is_first);
}

// The digest of a chunk of a multiple of 64 * BATCH bytes, by four threads side by side; all four get it.
template <int BATCH>
__device__ __forceinline__ Digest hash_long(const Secret *secret, const u8 *chunk, u32 bytes, u32 part) {
    Accumulator acc(part);
    const ulonglong2 *from = (const ulonglong2 *)chunk + part;
    u32 stripes = bytes / 64;
    for (u32 n = 0; n < stripes; n += BATCH) {
        ulonglong2 data[BATCH];
#pragma unroll
        for (u32 k = 0; k < BATCH; ++k) data[k] = from[4 * (n + k)];
#pragma unroll
        for (u32 k = 0; k < BATCH; ++k) {
            if (n + k == stripes - 1) {
                acc.add(data[k], secret->last[2 * part], secret->last[2 * part + 1]);
            } else {
                u32 at = (n + k) % 16 + 2 * part;
                acc.add(data[k], secret->word[at], secret->word[at + 1]);
                if ((n + k) % 16 == 15) acc.scramble(secret->word[16 + 2 * part], secret->word[17 + 2 * part]);
            }
        }
    }
    Digest shares = acc.share(secret, part);
    for (u32 step = 1; step < 4; step *= 2) {
        shares.low += __shfl_xor_sync(ALL, shares.low, step);
        shares.high += __shfl_xor_sync(ALL, shares.high, step);
    }
    return Accumulator::finish(shares, bytes);
}

// Chunks of 256 bytes or more, four threads each, so eight for a warp.
template <int BATCH>
__device__ __forceinline__ void leaves_long(State *st, const u8 *data, u32 is_first) {
    __shared__ Secret secret;
    for (u32 k = threadIdx.x; k < sizeof(Secret) / 8; k += THREADS) ((u64 *)&secret)[k] = ((const u64 *)&st->secret)[k];
    __syncthreads();
    const u32 lane = lane_id(), part = lane % 4, shift = st->shift;
    const u32 units = (st->count + 7) / 8, stride = gridDim.x * WARPS;
    const u64 whole = st->len >> shift;
    Tally tally = {{0, 0}, 0};
    for (u32 unit = blockIdx.x * WARPS + threadIdx.x / WARP; unit < units; unit += stride) {
        u32 chunk = unit * 8 + lane / 4;
        bool is_whole = chunk < whole;
        Digest before = {0, 0}, digest = {0, 0};
        if (is_whole && part == 0 && !is_first) before = load(st->digests + chunk);
        // Whoever has no whole chunk hashes the first one along, for the sums over four need all lanes.
        const u8 *from = data + ((u64)(is_whole ? chunk : 0) << shift);
        if (whole) digest = hash_long<BATCH>(&secret, from, 1u << shift, part);
        bool changed = is_whole && part == 0 && is_changed(st, tally, chunk, digest, before, is_first);
        u32 bits = __ballot_sync(ALL, changed);
        if (lane == 0) {
            u32 byte = 0;
            for (u32 k = 0; k < 8; ++k) byte |= ((bits >> (4 * k)) & 1) << k;
            ((u8 *)st->changed)[unit] = (u8)byte;
        }
    }
    finish_leaves(st, data, tally, is_first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 8) dedup_leaves_256(State *st, const u8 *data, u32 is_first) {
    leaves_long<4>(st, data, is_first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_leaves_long(State *st, const u8 *data, u32 is_first) {
    leaves_long<8>(st, data, is_first);
}

// Hashes one chunk with one thread, 16 bytes at a time where it can.
__device__ inline Digest hash_one(const State *st, const u8 *data, u32 chunk) {
    const ulonglong2 *from = (const ulonglong2 *)(data + ((u64)chunk << st->shift));
    u32 bytes = chunk_bytes(st, chunk);
    auto piece = [&](int k) { return from[k]; };
    if (bytes == 32) return hash_pieces<2>(piece, st->secret.word);
    if (bytes == 64) return hash_pieces<4>(piece, st->secret.word);
    if (bytes == 128) return hash_pieces<8>(piece, st->secret.word);
    return hash_any((const u8 *)from, bytes, &st->secret);
}

// Auto: one chunk of each run, where a hash says, and whether it is worth looking further; the twin of
// crates/dedup/src/sample.rs and of State::is_mostly_new.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_sample(State *st, const u8 *data, u64 salt) {
    u32 count = st->count, run = min(max(count / 64, 1u), 64u);
    u32 taken = (count + run - 1) / run;
    u64 found = 0;
    for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < taken; n += gridDim.x * THREADS) {
        u32 start = n * run, here = min(run, count - start);
        u32 chunk = start + (u32)(((stir(salt + n * P64_1) >> 32) * here) >> 32);
        Digest digest = hash_one(st, data, chunk);
        if (!same(digest, load(st->digests + chunk)) && find(st, digest) == UNKNOWN) found += 1;
    }
    add_to(&st->sampled_new, found);
    if (!is_last_block(&st->tickets[1]) || threadIdx.x != 0) return;
    st->full = atomicAdd(&st->sampled_new, 0ull) * 8 >= (u64)taken * 7;
}

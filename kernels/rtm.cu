// The wave propagator of the example `rtm` (crates/engine/examples/rtm/cuda.rs launches these).
//
// The formulas are those of the host back end (stencil.rs), which is their reference; sums are
// contracted to fused multiply-adds here, so results agree to rounding and not bit for bit.
// z (depth) is the fastest axis. The outermost HALO cells of a grid are zero and stay so.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

constexpr int HALO = 4;
// Cells along z and y that a block of the 3-D kernel updates at once.
constexpr int TILE_Z = 32;
constexpr int TILE_Y = 16;

constexpr float CENTRE = -205.0f / 72.0f;
constexpr float SIDE_1 = 8.0f / 5.0f;
constexpr float SIDE_2 = -1.0f / 5.0f;
constexpr float SIDE_3 = 8.0f / 315.0f;
constexpr float SIDE_4 = -1.0f / 560.0f;

// Values that no receiver could tell from nothing become nothing.
__device__ inline float quiet(float value) { return fabsf(value) < 1e-20f ? 0.0f : value; }

// The field one step on, from the fields now and one step before, inside the sponge's factor g.
__device__ inline float advance(float g, float now, float before, float courant2, float laplacian) {
    return quiet(g * (2.0f * now - g * before + courant2 * laplacian));
}

// One time step of a section. Threads: z, x. `next` holds the field before and becomes the next.
extern "C" __global__ void __launch_bounds__(256)
rtm_step_2d(int nx, int nz, const float* __restrict__ now, float* __restrict__ next,
            const float* __restrict__ courant2, const float* __restrict__ sponge_x,
            const float* __restrict__ sponge_z) {
    const int z = HALO + blockIdx.x * blockDim.x + threadIdx.x;
    const int x = HALO + blockIdx.y * blockDim.y + threadIdx.y;
    if (z >= nz - HALO || x >= nx - HALO) return;
    const int i = x * nz + z;
    const float here = now[i];
    const float laplacian = 2.0f * CENTRE * here
        + SIDE_1 * ((now[i - nz] + now[i + nz]) + (now[i - 1] + now[i + 1]))
        + SIDE_2 * ((now[i - 2 * nz] + now[i + 2 * nz]) + (now[i - 2] + now[i + 2]))
        + SIDE_3 * ((now[i - 3 * nz] + now[i + 3 * nz]) + (now[i - 3] + now[i + 3]))
        + SIDE_4 * ((now[i - 4 * nz] + now[i + 4 * nz]) + (now[i - 4] + now[i + 4]));
    next[i] = advance(sponge_x[x] * sponge_z[z], here, next[i], courant2[i], laplacian);
}

// One time step of a volume. A block of TILE_Z x TILE_Y threads marches along x over `march`
// planes: each cell is loaded from global memory once per block, waits in a queue of registers for
// its turns as a neighbour along x, and is shared in its plane through a tile with a halo.
extern "C" __global__ void __launch_bounds__(TILE_Z * TILE_Y)
rtm_step_3d(int nx, int ny, int nz, int march, const float* __restrict__ now,
            float* __restrict__ next, const float* __restrict__ courant2,
            const float* __restrict__ sponge_x, const float* __restrict__ sponge_y,
            const float* __restrict__ sponge_z) {
    // Two tiles in turn: one barrier a plane keeps this plane's readers from the next one's writes.
    __shared__ float tiles[2][TILE_Y + 2 * HALO][TILE_Z + 2 * HALO];

    const int tz = threadIdx.x, ty = threadIdx.y;
    const int z = HALO + blockIdx.x * TILE_Z + tz;
    const int y = HALO + blockIdx.y * TILE_Y + ty;
    const int first = HALO + blockIdx.z * march;
    const int last = min(first + march, nx - HALO);
    const bool readable = z < nz && y < ny;
    const bool updated = z < nz - HALO && y < ny - HALO;
    const int plane = ny * nz;
    const int column = y * nz + z;
    // Which cells of the halo this thread fetches: the first HALO rows and columns of threads
    // fetch those before the tile and those after it.
    const bool fetch_z = tz < HALO && y < ny, after_z = fetch_z && z + TILE_Z < nz;
    const bool fetch_y = ty < HALO && z < nz, after_y = fetch_y && y + TILE_Y < ny;
    const float across = updated ? sponge_y[y] * sponge_z[z] : 0.0f;

    // queue[k] is the cell at x - HALO + k.
    float queue[2 * HALO + 1];
#pragma unroll
    for (int k = 1; k <= 2 * HALO; ++k)
        queue[k] = readable ? now[(first - HALO + k - 1) * plane + column] : 0.0f;

    for (int x = first; x < last; ++x) {
#pragma unroll
        for (int k = 0; k < 2 * HALO; ++k) queue[k] = queue[k + 1];
        queue[2 * HALO] = readable ? now[(x + HALO) * plane + column] : 0.0f;

        float (*tile)[TILE_Z + 2 * HALO] = tiles[x & 1];
        const int i = x * plane + column;
        tile[ty + HALO][tz + HALO] = queue[HALO];
        if (fetch_z) {
            tile[ty + HALO][tz] = now[i - HALO];
            tile[ty + HALO][tz + HALO + TILE_Z] = after_z ? now[i + TILE_Z] : 0.0f;
        }
        if (fetch_y) {
            tile[ty][tz + HALO] = now[i - HALO * nz];
            tile[ty + HALO + TILE_Y][tz + HALO] = after_y ? now[i + TILE_Y * nz] : 0.0f;
        }
        __syncthreads();

        if (updated) {
            const float* here = &tile[ty + HALO][tz + HALO];
            constexpr int ROW = TILE_Z + 2 * HALO;
            const float laplacian = 3.0f * CENTRE * queue[4]
                + SIDE_1 * ((queue[3] + queue[5]) + (here[-ROW] + here[ROW]) + (here[-1] + here[1]))
                + SIDE_2 * ((queue[2] + queue[6]) + (here[-2 * ROW] + here[2 * ROW]) + (here[-2] + here[2]))
                + SIDE_3 * ((queue[1] + queue[7]) + (here[-3 * ROW] + here[3 * ROW]) + (here[-3] + here[3]))
                + SIDE_4 * ((queue[0] + queue[8]) + (here[-4 * ROW] + here[4 * ROW]) + (here[-4] + here[4]));
            next[i] = advance(sponge_x[x] * across, queue[4], next[i], courant2[i], laplacian);
        }
    }
}

// Adds the amplitude of a point source. One thread.
extern "C" __global__ void
rtm_inject_source(const float* __restrict__ courant2, float* __restrict__ field, int cell,
                  float amplitude) {
    field[cell] += courant2[cell] * amplitude;
}

// The cell of receiver r: receivers stand on a rectangle, `across` of them in a line.
__device__ inline int receiver(int r, int origin, int across, int stride, int across_stride) {
    return origin + (r / across) * stride + (r % across) * across_stride;
}

// Adds each receiver's sample to the field; no two receivers share a cell.
extern "C" __global__ void __launch_bounds__(256)
rtm_inject_traces(int receivers, int origin, int across, int stride, int across_stride,
                  const float* __restrict__ courant2, const float* __restrict__ sample,
                  float* __restrict__ field) {
    const int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= receivers) return;
    const int cell = receiver(r, origin, across, stride, across_stride);
    field[cell] += courant2[cell] * sample[r];
}

// Records the field at each receiver: stores it, or subtracts it from what is there.
extern "C" __global__ void __launch_bounds__(256)
rtm_record(int receivers, int origin, int across, int stride, int across_stride,
           const float* __restrict__ field, float* __restrict__ sample, int subtract) {
    const int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= receivers) return;
    const float seen = field[receiver(r, origin, across, stride, across_stride)];
    sample[r] = subtract ? sample[r] - seen : seen;
}

// The field's values in some of its cells. An index that is none of a cell gives zero.
extern "C" __global__ void __launch_bounds__(256)
rtm_gather(int count, int cells, const unsigned* __restrict__ indices, const float* __restrict__ field,
           float* __restrict__ row) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const unsigned cell = indices[i];
    row[i] = cell < static_cast<unsigned>(cells) ? field[cell] : 0.0f;
}

// image += source * receiver.
extern "C" __global__ void __launch_bounds__(256)
rtm_correlate(int cells, const float* __restrict__ source, const float* __restrict__ receiver,
              float* __restrict__ image) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < cells) image[i] += source[i] * receiver[i];
}

// map += source^2 in whole units of 2^-40, saturating: the same map whatever the order of the sum.
extern "C" __global__ void __launch_bounds__(256)
rtm_illuminate(int cells, const float* __restrict__ source, long long* __restrict__ map) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= cells) return;
    const float square = __fmul_rn(source[i], source[i]);
    const long long units = __float2ll_rz(__fmul_rn(square, 1099511627776.0f));
    const long long most = 0x7fffffffffffffffLL;
    map[i] = map[i] > most - units ? most : map[i] + units;
}

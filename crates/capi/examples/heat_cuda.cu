/*
 * A heat equation on a GPU whose whole history is read back in reverse, as an adjoint does: forward, each state is
 * checkpointed from device memory; backward, each is restored to it, as it was hinted. Built by
 *
 *   nvcc -I include examples/heat_cuda.cu -L lib -ltierflow -o heat_cuda
 *   heat_cuda [VERSIONS [DEVICE_CACHE [HOST_CACHE [SUBSTEPS]]]]
 */
#include "tierflow.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

constexpr int SIDE = 4096;
constexpr size_t BYTES = sizeof(double) * SIDE * SIDE;

#define MUST(call)                                                                                         \
    do {                                                                                                   \
        if ((call) != 0) {                                                                                 \
            fprintf(stderr, "%s failed: %s; %s\n", #call, tf_error_message(),                              \
                    cudaGetErrorString(cudaGetLastError()));                                               \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

__global__ void begin(double *field)
{
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    field[at] = at < SIDE ? 100.0 : 0.0;
}

__global__ void step(const double *from, double *to)
{
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    int row = (int)(at / SIDE), column = (int)(at % SIDE);
    bool is_edge = row == 0 || row == SIDE - 1 || column == 0 || column == SIDE - 1;
    to[at] = is_edge ? from[at] : 0.25 * (from[at - SIDE] + from[at + SIDE] + from[at - 1] + from[at + 1]);
}

/* Adds up the bits of a field, each word by its place. */
__global__ void sum_up(const double *field, unsigned long long *sum)
{
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    atomicAdd(sum, (unsigned long long)__double_as_longlong(field[at]) * (2 * at + 1));
}

static double *fields[2];
static unsigned long long *device_sum;
static cudaStream_t stream;

/* So many steps, an even number, from the first field back into it. */
static void steps(int count)
{
    for (int index = 0; index < count; index++)
        step<<<SIDE * SIDE / 256, 256, 0, stream>>>(fields[index % 2], fields[(index + 1) % 2]);
    MUST(cudaStreamSynchronize(stream));
}

static unsigned long long checksum()
{
    unsigned long long sum = 0;
    MUST(cudaMemsetAsync(device_sum, 0, sizeof sum, stream));
    sum_up<<<SIDE * SIDE / 256, 256, 0, stream>>>(fields[0], device_sum);
    MUST(cudaMemcpyAsync(&sum, device_sum, sizeof sum, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    return sum;
}

/* Milliseconds that a call takes. */
template <typename Call> static double timed(Call call)
{
    auto begun = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
}

static double median(std::vector<double> all)
{
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

int main(int argc, char **argv)
{
    const int versions = argc > 1 ? atoi(argv[1]) : 100;
    const char *device_cache = argc > 2 ? argv[2] : "4GiB", *host_cache = argc > 3 ? argv[3] : "20GiB";
    const int substeps = argc > 4 ? atoi(argv[4]) : 100;
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreate(&stream));
    for (double *&field : fields)
        MUST(cudaMalloc(&field, BYTES));
    MUST(cudaMalloc(&device_sum, sizeof *device_sum));

    std::vector<double> plain, saved, restored;
    double *spare;
    MUST(cudaMalloc(&spare, BYTES));

    tf_options options;
    tf_engine engine;
    MUST(tf_options_new(&options));
    MUST(tf_options_set(options, "device", "cuda:0"));
    MUST(tf_options_set(options, "device_cache", device_cache));
    MUST(tf_options_set(options, "host_cache", host_cache));
    MUST(tf_options_set(options, "after_restore", "discard"));
    MUST(tf_open(options, nullptr, &engine));
    MUST(tf_options_free(options));

    std::vector<uint64_t> order;
    for (int version = versions; version-- > 0;)
        order.push_back(version);
    MUST(tf_hint(engine, order.data(), order.size()));

    tf_region region = {fields[0], BYTES, TF_PLACE_DEVICE};
    tf_call call = {stream, 0};
    std::vector<unsigned long long> sums;
    begin<<<SIDE * SIDE / 256, 256, 0, stream>>>(fields[0]);
    for (int version = 0; version < versions; version++) {
        /* A copy as any program makes it, in the same place. */
        steps(substeps);
        checksum();
        plain.push_back(timed([&] {
            MUST(cudaMemcpyAsync(spare, fields[0], BYTES, cudaMemcpyDeviceToDevice, stream));
            MUST(cudaStreamSynchronize(stream));
        }));
        steps(substeps);
        sums.push_back(checksum());
        saved.push_back(timed([&] { MUST(tf_checkpoint(engine, version, &region, 1, &call)); }));
    }
    MUST(tf_prefetch_start(engine));
    int wrong = 0;
    for (uint64_t version : order) {
        MUST(cudaMemsetAsync(fields[0], 0xff, BYTES, stream));
        MUST(cudaStreamSynchronize(stream));
        restored.push_back(timed([&] { MUST(tf_restore(engine, version, &region, 1, &call)); }));
        wrong += checksum() != sums[version];
        steps(substeps);
    }

    tf_metrics metrics;
    char report[8192];
    MUST(tf_metrics_read(engine, &metrics));
    MUST(tf_report(engine, report, sizeof report, nullptr));
    MUST(tf_close(engine));
    double copy = median(plain), save = median(saved), restore = median(restored), mean = 0;
    for (double one : saved)
        mean += one / versions;
    printf("%d versions of %zu MiB; device cache %s, host cache %s\n", versions, BYTES >> 20, device_cache, host_cache);
    printf("one device copy         %8.3f ms\n", copy);
    printf("a checkpoint blocks     %8.3f ms, %.2f of a copy; mean %.3f ms\n", save, save / copy, mean);
    printf("a restore blocks        %8.3f ms, %.2f of a copy\n", restore, restore / copy);
    printf("restores from the device %d of %d, wrong %d\n", (int)metrics.restores_from[0], versions, wrong);
    printf("%s", report);
    return wrong != 0;
}

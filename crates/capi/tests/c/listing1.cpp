// Listing 1 of HPDC'23 as the paper prints it, and the code that the paper leaves out. `listing1.lowered` is `listing1.txt` with kernel
// launches as a compiler for CUDA makes them: `kernel<<<blocks, threads>>>(...)` has become `launch(kernel, blocks, threads)(...)`.
#include "check.h"
#include "veloc.h"

#define MPI_World MPI_COMM_WORLD

static const int num_ckpts = 12;
static const size_t size = 200000;
static int rank_here, computed, uncomputed;

template <typename Kernel> static Kernel *launch(Kernel *kernel, int blocks, int threads)
{
    CHECK(blocks > 0 && threads > 0);
    return kernel;
}

static void compute_and_compress(unsigned char *ptr)
{
    fill(ptr, size, (unsigned)(computed++ * 100 + rank_here));
}

static void uncompress_and_compute(unsigned char *ptr)
{
    uncomputed++;
    CHECK(holds(ptr, size, (unsigned)((num_ckpts - uncomputed) * 100 + rank_here)));
    fill(ptr, size, 12345);
}

int main(int argc, char **argv)
{
    const int nb = 4, nt = 32;
    const char *ckpt_name = "wave", *config_file = argv[1];
    unsigned char *ptr = (unsigned char *)malloc(size);
    CHECK(argc == 2 && ptr != NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_here);
    {
#include "listing1.lowered"
    }
    CHECK(computed == num_ckpts && uncomputed == num_ckpts);
    // Versions and regions that do not exist have no size.
    CHECK(VELOC_Recover_size(num_ckpts, 1) == -1 && VELOC_Recover_size(0, 2) == -1);
    CHECK(VELOC_Restart(num_ckpts) == VELOC_FAILURE);
    CHECK(VELOC_Prefetch_enqueue(-1) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    MPI_Finalize();
    free(ptr);
    printf("passed\n");
    return 0;
}

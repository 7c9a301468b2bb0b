/*
 * Ranks of an MPI program that take and clean up checkpoints by VELOC's API.
 *
 *   mpiexec -n N cleaned CONFIGURATION [take NAME] [clean NAME]
 */
#include "check.h"
#include "veloc.h"

#include <mpi.h>
#include <string.h>

int main(int argc, char **argv)
{
    static unsigned char own[30000];
    int at;
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, own, 1, sizeof own) == VELOC_SUCCESS);
    for (at = 2; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "take") == 0) {
            CHECK(VELOC_Checkpoint(argv[at + 1], 1) == VELOC_SUCCESS);
            CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
        } else {
            CHECK(VELOC_Cleanup(argv[at + 1]) == VELOC_SUCCESS);
        }
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    printf("passed\n");
    MPI_Finalize();
    return 0;
}

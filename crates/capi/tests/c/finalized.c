/* Calls that need the other ranks fail once MPI has ended, and change nothing. The argument is a configuration. */
#include "check.h"
#include "tierflow_mpi.h"
#include "veloc.h"

int main(int argc, char **argv)
{
    int step = 1;
    tf_group group;
    CHECK(argc == 2);
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_FAILURE);
    CHECK(tf_mpi_group(MPI_COMM_WORLD, &group) == TF_GROUP);
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("heat", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) < 0);
    CHECK(VELOC_Restart("heat", 1) == VELOC_FAILURE);
    VELOC_Finalize(1);
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_FAILURE);
    puts("passed");
    return 0;
}

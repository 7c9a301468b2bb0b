/*
 * Measures how long checkpoints by VELOC's client API block their application. Link it to this library or to VELOC's own.
 *
 *   mpiexec -n 4 blocking CONFIGURATION MIB_OF_A_RANK CHECKPOINTS [sync]
 *
 * Prints for each checkpoint the longest time of a rank: "blocked", in begin, mem and end; and "done", until
 * VELOC_Checkpoint_wait returned, and with `sync` until what was written is on the disk (sync(2)).
 */
#define _DEFAULT_SOURCE

#include "veloc.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the longest time of all ranks in milliseconds. */
static double longest(double seconds)
{
    double mine = seconds * 1e3, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv)
{
    int rank, version, versions, syncs;
    size_t bytes;
    char *memory;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 4 || VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    bytes = (size_t)atoi(argv[2]) << 20;
    versions = atoi(argv[3]);
    syncs = argc > 4;
    memory = malloc(bytes);
    VELOC_Mem_protect(0, memory, bytes, 1);
    for (version = 1; version <= versions; version++) {
        double begun, blocked, done;
        memset(memory, version + rank, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        begun = MPI_Wtime();
        if (VELOC_Checkpoint_begin("blocking", version) != VELOC_SUCCESS ||
            VELOC_Checkpoint_selective(VELOC_CKPT_ALL, NULL, 0) != VELOC_SUCCESS ||
            VELOC_Checkpoint_end(1) != VELOC_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 2);
        blocked = longest(MPI_Wtime() - begun);
        if (VELOC_Checkpoint_wait() != VELOC_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 3);
        if (syncs)
            sync();
        done = longest(MPI_Wtime() - begun);
        if (rank == 0)
            printf("checkpoint %d: blocked %8.1f ms, done %8.1f ms\n", version, blocked, done);
    }
    VELOC_Finalize(1);
    MPI_Finalize();
    return 0;
}

/*
 * A heat equation that is checkpointed by VELOC's client API: its memory, or a file that it writes itself.
 *
 *   mpiexec -n 4 heat_veloc heat.cfg memory|file STEPS EVERY
 */
#include "heat.h"
#include "veloc.h"

#include <string.h>

static strip fields[2];
static int step;

/* Writes or reads the file of a checkpoint. */
static int transfer(int version, int rank, int is_restart)
{
    char original[VELOC_MAX_NAME], routed[VELOC_MAX_NAME];
    FILE *file;
    size_t done = 0;
    snprintf(original, sizeof original, "heat-%d-%d.dat", version, rank);
    if (VELOC_Route_file(original, routed) != VELOC_SUCCESS)
        return 0;
    file = fopen(routed, is_restart ? "rb" : "wb");
    if (file == NULL)
        return 0;
    if (is_restart)
        done = fread(&step, sizeof step, 1, file) + fread(fields, sizeof fields, 1, file);
    else
        done = fwrite(&step, sizeof step, 1, file) + fwrite(fields, sizeof fields, 1, file);
    return (fclose(file) == 0) & (done == 2);
}

int main(int argc, char **argv)
{
    int rank, ranks, newest, steps, every, in_file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5)
        heat_stop("usage: heat_veloc CONFIGURATION memory|file STEPS EVERY: starting");
    in_file = strcmp(argv[2], "file") == 0;
    steps = atoi(argv[3]);
    every = atoi(argv[4]);
    MUST(VELOC_Init(MPI_COMM_WORLD, argv[1]));
    if (!in_file) {
        MUST(VELOC_Mem_protect(0, &step, 1, sizeof step));
        MUST(VELOC_Mem_protect(1, fields, 2 * (ROWS + 2) * COLUMNS, sizeof(double)));
    }
    heat_begin(fields[0], rank);
    newest = VELOC_Restart_test("heat", 0);
    if (newest >= 0) {
        MUST(VELOC_Restart_begin("heat", newest));
        if (in_file)
            MUST(!transfer(newest, rank, 1));
        else
            MUST(VELOC_Recover_mem());
        MUST(VELOC_Restart_end(1));
    }
    if (rank == 0) {
        printf("from %d\n", step);
        fflush(stdout);
    }
    while (step < steps) {
        heat_step(fields[step % 2], fields[(step + 1) % 2], rank, ranks);
        step++;
        if (step % every == 0) {
            MUST(VELOC_Checkpoint_wait());
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) {
                /* From here on no rank restarts from an older checkpoint. */
                printf("durable %d\n", step - every);
                fflush(stdout);
            }
            MUST(VELOC_Checkpoint_begin("heat", step));
            if (in_file)
                MUST(VELOC_Checkpoint_end(transfer(step, rank, 0)));
            else {
                MUST(VELOC_Checkpoint_mem());
                MUST(VELOC_Checkpoint_end(1));
            }
        }
    }
    heat_result(fields[steps % 2], rank);
    MUST(VELOC_Finalize(1));
    MPI_Finalize();
    return 0;
}

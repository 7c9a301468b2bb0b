/*
 * Ranks of an MPI program, each with a directory for its node, protect each other's versions.
 *
 *   mpiexec -n N nodes DIRECTORY single|multiple SCHEME FIRST COUNT NODES CONTENTS
 *
 * Versions 0 to FIRST - 1 exist, and the program takes COUNT further ones. NODES is a letter for each rank: the name of its node.
 * CONTENTS is a number that makes the bytes differ from those of earlier versions of the same numbers. If COUNT is 0, the program leaves
 * the engine open. Each rank's statistics go to DIRECTORY.
 */
#include "check.h"
#include "tierflow_mpi.h"

#include <string.h>

enum { BYTES = 300000 };

static unsigned char own[BYTES];

int main(int argc, char **argv)
{
    int rank, ranks, got, wanted, first, count, contents, version, durable;
    char text[4096];
    uint64_t newest, bytes;
    tf_region region = {own, BYTES, TF_PLACE_HOST};
    tf_options options;
    tf_engine engine;
    tf_group group;
    CHECK(argc == 8);
    wanted = strcmp(argv[2], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    CHECK(MPI_Init_thread(&argc, &argv, wanted, &got) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    first = atoi(argv[4]);
    count = atoi(argv[5]);
    contents = 1000 * atoi(argv[7]);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "4MiB") == TF_OK);
    CHECK(tf_options_set(options, "redundancy", argv[3]) == TF_OK);
    CHECK(tf_options_set(options, "group_patience", "60") == TF_OK);
    CHECK(tf_options_set(options, "durable_in_order", "true") == TF_OK);
    snprintf(text, sizeof text, "%s/node-%c", argv[1], argv[6][rank]);
    CHECK(tf_options_set(options, "node_local", text) == TF_OK);
    snprintf(text, sizeof text, "%s/%%r.json", argv[1]);
    CHECK(tf_options_set(options, "statistics", text) == TF_OK);
    snprintf(text, sizeof text, "node-%c", argv[6][rank]);
    CHECK(tf_options_set(options, "failure_domain", text) == TF_OK);
    CHECK(tf_mpi_group(MPI_COMM_WORLD, &group) == TF_OK);
    CHECK((group.threads != 0) == (got == MPI_THREAD_MULTIPLE));
    region.bytes -= (uint64_t)rank;
    CHECK(tf_open(options, &group, &engine) == TF_OK);
    if (tf_latest(engine, UINT64_MAX, &newest) == TF_UNKNOWN)
        newest = UINT64_MAX;
    printf("rank %d newest %lld\n", rank, (long long)newest);
    if (newest + 1 != (uint64_t)first) {
        /* The version cannot be rebuilt, and the error names it. */
        CHECK(tf_size(engine, (uint64_t)first - 1, &bytes) == TF_DAMAGED);
        printf("told %s\n", tf_error_message());
        first = 0;
    }
    for (version = 0; version < first; version++) {
        memset(own, 0, BYTES);
        CHECK(tf_restore(engine, (uint64_t)version, &region, 1, NULL) == TF_OK);
        CHECK(holds(own, region.bytes, (unsigned)((contents + version) * ranks + rank)));
    }
    for (version = first; version < first + count; version++) {
        fill(own, BYTES, (unsigned)((contents + version) * ranks + rank));
        CHECK(tf_checkpoint(engine, (uint64_t)version, &region, 1, NULL) == TF_OK);
        /* The application uses MPI at the same time. */
        MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    CHECK(tf_wait(engine, 60) == TF_OK);
    for (version = first; version < first + count; version++)
        CHECK(tf_is_durable(engine, (uint64_t)version, &durable) == TF_OK && durable == 1);
    CHECK(tf_protect(engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
    if (count > 0)
        CHECK(tf_close(engine) == TF_OK);
    printf("passed\n");
    MPI_Finalize();
    return 0;
}

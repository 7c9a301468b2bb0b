/* Tests of calls of VELOC's client API that fail: the state that they leave, and the calls after them. */
#include "check.h"
#include "veloc.h"
#include "routed.h"

#include <string.h>
#include <sys/stat.h>

static int step;
static const char *config;

static void init(void)
{
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
}

static size_t held(void)
{
    uint64_t none[1];
    size_t count;
    CHECK(tf_versions(VELOC_Engine(), none, 0, &count) == TF_OK);
    return count;
}

/* The number of a checkpoint's head is taken, so its end fails. None of its parts stays. */
static void a_head_that_cannot_be_written(void)
{
    tf_region region = {&step, sizeof step, TF_PLACE_HOST};
    uint64_t newest;
    init();
    CHECK(VELOC_Checkpoint_begin("heat", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(tf_latest(VELOC_Engine(), UINT64_MAX, &newest) == TF_OK);
    CHECK(tf_checkpoint(VELOC_Engine(), newest | 255, &region, 1, NULL) == TF_OK);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_FAILURE);
    CHECK(held() == 1);
    CHECK(tf_discard(VELOC_Engine(), newest | 255) == TF_OK);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* A file that comes late does not take the place of a newer one. */
static void a_file_that_comes_late(const char *directory)
{
    char place[2048], original[4096];
    int version;
    for (version = 1; version <= 2; version++) {
        snprintf(place, sizeof place, "%s/late-%d", directory, version);
        snprintf(original, sizeof original, "%s/original.txt", place);
        init();
        CHECK(VELOC_Checkpoint_begin("late", 1) == VELOC_SUCCESS);
        write_routed(original, "older");
        CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
        CHECK(VELOC_Checkpoint_wait() == VELOC_FAILURE);
        CHECK(mkdir(place, 0700) == 0);
        CHECK(VELOC_Checkpoint_begin("late", version) == VELOC_SUCCESS);
        write_routed(original, "newer");
        CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
        CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
        has(original, "newer");
        CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
        has(original, "newer");
    }
}

/* A path that does not fit is not routed, and the checkpoint goes on without the file. */
static void a_path_without_room(const char *directory)
{
    char scratch[4096], routed[VELOC_MAX_NAME];
    int length = snprintf(scratch, sizeof scratch, "%s", directory), part;
    init();
    CHECK(VELOC_Checkpoint_begin("none", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Route_file("file", NULL) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    for (part = 0; part < 5; part++) {
        length += snprintf(scratch + length, sizeof scratch - (size_t)length, "/%0220d", part);
        CHECK(mkdir(scratch, 0700) == 0);
    }
    CHECK(setenv("VELOC_SCRATCH", scratch, 1) == 0);
    init();
    CHECK(VELOC_Checkpoint_begin("long", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Route_file("file", routed) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "does not fit") != NULL);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("long", 0) == 1);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* A second file of one checkpoint is refused. */
static void a_second_file(const char *directory)
{
    char first[4096], second[4096], routed[VELOC_MAX_NAME];
    snprintf(first, sizeof first, "%s/first.txt", directory);
    snprintf(second, sizeof second, "%s/second.txt", directory);
    init();
    CHECK(VELOC_Checkpoint_begin("two", 1) == VELOC_SUCCESS);
    write_routed(first, "first");
    CHECK(VELOC_Route_file(second, routed) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "first.txt") != NULL);
    CHECK(VELOC_Route_file(first, routed) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    has(first, "first");
    CHECK(fopen(second, "r") == NULL);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* Engines with and without memory that they can lend take a file in and give it out. */
static void a_file_in_any_memory(const char *directory, const char *key, const char *value)
{
    char original[4096], routed[VELOC_MAX_NAME];
    snprintf(original, sizeof original, "%s/original.txt", directory);
    CHECK(setenv(key, value, 1) == 0);
    init();
    CHECK(VELOC_Checkpoint_begin("any", 1) == VELOC_SUCCESS);
    write_routed(original, "bytes");
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    CHECK(VELOC_Restart_begin("any", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Route_file(original, routed) == VELOC_SUCCESS);
    has(routed, "bytes");
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void run(const char *command, const char *path)
{
    char line[5000];
    snprintf(line, sizeof line, "%s %s", command, path);
    CHECK(system(line) == 0);
}

/* A checkpoint that the program discards before it is durable takes no earlier ones with it. */
static void a_checkpoint_that_is_discarded(const char *directory)
{
    char path[4096];
    uint64_t newest;
    size_t before;
    CHECK(setenv("VELOC_CLOSING_PATIENCE", "1", 1) == 0);
    init();
    for (step = 1; step <= 2; step++)
        CHECK(VELOC_Checkpoint("heat", step) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    before = held();
    CHECK(before == 4);
    snprintf(path, sizeof path, "%s/persistent", directory);
    run("rm -rf", path);
    CHECK(VELOC_Checkpoint_begin("heat", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(tf_latest(VELOC_Engine(), UINT64_MAX, &newest) == TF_OK);
    CHECK(tf_discard(VELOC_Engine(), newest) == TF_OK);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    CHECK(held() == before + 1);
    CHECK(VELOC_Finalize(0) != VELOC_SUCCESS);
}

/* A damaged head does not hide sound ones. */
static void a_damaged_head(const char *directory)
{
    char path[4096];
    for (step = 1; step <= 2; step++) {
        init();
        CHECK(VELOC_Checkpoint("heat", step) == VELOC_SUCCESS);
        CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    }
    /* Each run writes its head to a file of its own. */
    snprintf(path, sizeof path, "%s/persistent/tierflow/id-3/rank-0/s*2.tfs", directory);
    run("sed -i s/TFVELOC[12]/TFVELOC0/", path);
    CHECK(VELOC_Init_single(4, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test_rank("heat", 0, 3) == 1);
    CHECK(VELOC_Restart_begin_rank("heat", 1, 3) == VELOC_SUCCESS);
    CHECK(VELOC_Recover_mem() == VELOC_SUCCESS && step == 1);
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    /* The damaged head may be the one that the call looks for. */
    CHECK(VELOC_Restart_begin_rank("heat", 2, 3) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test_rank("cold", 0, 3) == VELOC_UNKNOWN);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* VELOC_Finalize fails if the time line cannot be written, but closes the client and names lost versions all the same. */
static void no_way_for_a_time_line(const char *directory)
{
    char path[4096];
    CHECK(setenv("VELOC_TIMELINE_FILE", "/none/such", 1) == 0);
    init();
    CHECK(VELOC_Checkpoint("heat", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Cleanup("heat") == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "/none/such") != NULL);
    snprintf(path, sizeof path, "%s/persistent", directory);
    run("rm -rf", path);
    CHECK(setenv("VELOC_CLOSING_PATIENCE", "2", 1) == 0);
    init();
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    run("rm -rf", path);
    CHECK(VELOC_Checkpoint("heat", 2) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "version 2 of \"heat\" not durable") != NULL);
}

int main(int argc, char **argv)
{
    char path[4096];
    FILE *file;
    CHECK(argc == 3);
    snprintf(path, sizeof path, "%s/failures.cfg", argv[1]);
    config = path;
    file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "scratch = %s/scratch\npersistent = %s/persistent\nhost_cache = 1MiB\n", argv[1], argv[1]);
    CHECK(fclose(file) == 0);
    if (strcmp(argv[2], "head") == 0)
        a_head_that_cannot_be_written();
    else if (strcmp(argv[2], "late") == 0)
        a_file_that_comes_late(argv[1]);
    else if (strcmp(argv[2], "room") == 0)
        a_path_without_room(argv[1]);
    else if (strcmp(argv[2], "second") == 0)
        a_second_file(argv[1]);
    else if (strcmp(argv[2], "no-memory") == 0)
        a_file_in_any_memory(argv[1], "VELOC_HOST_CACHE", "0");
    else if (strcmp(argv[2], "device") == 0)
        a_file_in_any_memory(argv[1], "VELOC_DEVICE_CACHE", "4MiB");
    else if (strcmp(argv[2], "discarded") == 0)
        a_checkpoint_that_is_discarded(argv[1]);
    else if (strcmp(argv[2], "damaged") == 0)
        a_damaged_head(argv[1]);
    else if (strcmp(argv[2], "time-line") == 0)
        no_way_for_a_time_line(argv[1]);
    else
        CHECK(!"the second argument is a case");
    return 0;
}

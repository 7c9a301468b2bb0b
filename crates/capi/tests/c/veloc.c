/* Tests of VELOC's client API in a single process: the promises of its documentation, and cases that VELOC's own library gets wrong. */
#include "check.h"
#include "veloc.h"
#include "routed.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 5000 };

static double field[COUNT];
static int step;
static const char *config;
static int observed;

static void set(double value)
{
    int index;
    for (index = 0; index < COUNT; index++)
        field[index] = value + index;
    step = (int)value;
}

static int is_set(double value)
{
    int index;
    for (index = 0; index < COUNT; index++)
        if (field[index] != value + index)
            return 0;
    return step == (int)value;
}

static void init(void)
{
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(1, field, COUNT, sizeof(double)) == VELOC_SUCCESS);
}

static void observer(void *context, const char *name, int version)
{
    CHECK(context == &observed);
    if (strcmp(name, "heat") != 0)
        return;
    observed = version;
}

static void before_init(void)
{
    char routed[VELOC_MAX_NAME];
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint("heat", 1) == VELOC_FAILURE);
    CHECK(VELOC_Route_file("file", routed) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
    CHECK(VELOC_Engine() == 0);
    CHECK(VELOC_Init_single(3, "/none/such") == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "/none/such") != NULL);
}

static void memory(void)
{
    int ids[2] = {1, 7};
    init();
    CHECK(VELOC_Observe(VELOC_OBSERVE_CKPT_END, observer, &observed) == VELOC_SUCCESS);
    CHECK(VELOC_Observe(9, observer, &observed) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    set(1);
    CHECK(VELOC_Checkpoint("heat", 1) == VELOC_SUCCESS && observed == 1);
    set(2);
    CHECK(VELOC_Checkpoint("heat", 20) == VELOC_SUCCESS && observed == 20);
    CHECK(VELOC_Restart_test("heat", 0) == 20);
    CHECK(VELOC_Restart_test("heat", 19) == 1);
    CHECK(VELOC_Restart_test("heat", INT_MAX) == 20);
    CHECK(VELOC_Restart_test("cold", 0) == VELOC_FAILURE);
    CHECK(VELOC_Restart("heat", 1) == VELOC_SUCCESS && is_set(1));
    CHECK(VELOC_Restart("heat", 20) == VELOC_SUCCESS && is_set(2));
    CHECK(VELOC_Restart("heat", 5) == VELOC_FAILURE);

    /* Some regions are recovered first, and the others after them. */
    set(3);
    CHECK(VELOC_Restart_begin("heat", 20) == VELOC_SUCCESS);
    CHECK(VELOC_Recover_size(1) == COUNT * (int)sizeof(double));
    CHECK(VELOC_Recover_bytes(0) == (int64_t)sizeof step);
    CHECK(VELOC_Recover_size(7) == VELOC_FAILURE);
    CHECK(VELOC_Recover_selective(VELOC_RECOVER_SOME, ids, 1) == VELOC_SUCCESS);
    CHECK(field[0] == 2 && step == 3);
    CHECK(VELOC_Recover_selective(VELOC_RECOVER_REST, ids, 1) == VELOC_SUCCESS && step == 2);
    CHECK(VELOC_Recover_selective(VELOC_RECOVER_SOME, ids, 2) == VELOC_FAILURE);
    CHECK(VELOC_Recover_selective(9, ids, 1) == VELOC_FAILURE);
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_end(1) == VELOC_FAILURE);
    CHECK(VELOC_Recover_mem() == VELOC_FAILURE);

    /* A checkpoint that the application ends as failed does not count. */
    set(4);
    CHECK(VELOC_Checkpoint_begin("heat", 30) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_begin("heat", 31) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_wait() == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(0) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == 20 && observed == 20);
    CHECK(VELOC_Checkpoint_mem() == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_begin("heat", 32) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_FAILURE);

    /* A checkpoint of selected regions. A selection with a region that is not protected is refused. */
    CHECK(VELOC_Checkpoint_begin("part", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 2) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    set(5);
    CHECK(VELOC_Restart("part", 1) == VELOC_SUCCESS && field[0] == 4 && step == 5);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS && VELOC_Checkpoint_finished() == VELOC_SUCCESS);

    CHECK(VELOC_Checkpoint("no/name", 1) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint("heat", -1) == VELOC_FAILURE);
    CHECK(VELOC_Mem_unprotect(7) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
}

/* The next run finds the checkpoints of the last one. */
static void another_run(void)
{
    uint64_t count[1];
    size_t held;
    double small[10];
    init();
    CHECK(VELOC_Restart_test("heat", 0) == 20);
    CHECK(VELOC_Restart("heat", 20) == VELOC_SUCCESS && is_set(2));
    /* The run goes back to version 1, so its next checkpoint replaces the later ones. */
    CHECK(VELOC_Restart("heat", 1) == VELOC_SUCCESS);
    set(6);
    CHECK(VELOC_Checkpoint("heat", 10) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == 10);
    /* A second checkpoint of one number replaces the first. */
    set(7);
    CHECK(VELOC_Checkpoint("heat", 10) == VELOC_SUCCESS);
    CHECK(VELOC_Restart("heat", 10) == VELOC_SUCCESS && is_set(7));
    /* The configuration keeps three checkpoints of each name. */
    set(8);
    CHECK(VELOC_Checkpoint("heat", 11) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("heat", 12) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 9) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test("heat", 0) == 12);
    CHECK(tf_versions(VELOC_Engine(), count, 0, &held) == TF_OK && held == 2 * 4);
    /* The protected region is smaller than the saved one. */
    CHECK(VELOC_Mem_protect(1, small, 10, sizeof(double)) == VELOC_SUCCESS);
    CHECK(VELOC_Restart("heat", 12) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "region 1 has 80 bytes") != NULL);
    CHECK(VELOC_Mem_clear() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("heat", 13) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test("heat", 0) == 12);
    CHECK(VELOC_Finalize(0) == VELOC_SUCCESS);
}

static void regions_of_a_name(void)
{
    int a = 1, b = 2, c = 3;
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Region_protect(0, &a, 1, sizeof a, "first") == VELOC_SUCCESS);
    CHECK(VELOC_Region_protect(0, &b, 1, sizeof b, "second") == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &c, 1, sizeof c) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("first", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("second", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("third", 1) == VELOC_SUCCESS);
    a = b = c = 0;
    CHECK(VELOC_Restart("first", 1) == VELOC_SUCCESS && a == 1 && b == 0 && c == 0);
    CHECK(VELOC_Restart("second", 1) == VELOC_SUCCESS && b == 2 && c == 0);
    CHECK(VELOC_Region_clear("third") == VELOC_SUCCESS);
    CHECK(VELOC_Restart("third", 1) == VELOC_SUCCESS && c == 3);
    CHECK(VELOC_Region_unprotect(0, "first") == VELOC_SUCCESS);
    CHECK(VELOC_Region_unprotect(0, "first") == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void files(const char *directory)
{
    char original[4096], routed[VELOC_MAX_NAME];
    snprintf(original, sizeof original, "%s/original.txt", directory);
    init();
    CHECK(VELOC_Route_file(original, routed) == VELOC_FAILURE);
    CHECK(VELOC_Checkpoint_begin("file", 1) == VELOC_SUCCESS);
    write_routed(original, "one");
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    has(original, "one");
    /* A checkpoint of a file and of memory. */
    set(9);
    CHECK(VELOC_Checkpoint_begin("file", 2) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    write_routed(original, "two");
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    has(original, "two");
    CHECK(remove(original) == 0);
    init();
    set(0);
    CHECK(VELOC_Restart_begin("file", 2) == VELOC_SUCCESS);
    CHECK(VELOC_Recover_mem() == VELOC_SUCCESS && is_set(9));
    CHECK(VELOC_Route_file("another", routed) == VELOC_SUCCESS);
    has(routed, "two");
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    CHECK(access(routed, F_OK) != 0);
    CHECK(VELOC_Restart_begin("heat", 12) == VELOC_SUCCESS);
    CHECK(VELOC_Route_file("another", routed) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* All names for the copy of a checkpoint's file are taken: the checkpoint fails and does not count. */
static void no_way_for_a_file(const char *directory)
{
    char original[4096], taken[64][5000];
    int index;
    snprintf(original, sizeof original, "%s/original.txt", directory);
    init();
    for (index = 0; index < 64; index++) {
        snprintf(taken[index], sizeof taken[index], "%s/scratch/file-3-3.%d.staged", directory, index);
        CHECK(mkdir(taken[index], 0700) == 0);
    }
    CHECK(VELOC_Checkpoint_begin("file", 3) == VELOC_SUCCESS);
    write_routed(original, "three");
    CHECK(VELOC_Checkpoint_end(1) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test("file", 0) == 2);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    for (index = 0; index < 64; index++)
        CHECK(rmdir(taken[index]) == 0);
    init();
    CHECK(VELOC_Restart_test("file", 0) == 2);
    CHECK(VELOC_Checkpoint_begin("file", 3) == VELOC_SUCCESS);
    write_routed(original, "three");
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    has(original, "three");
}

/* Regions that share bytes could not be brought back. */
static void shared_bytes(void)
{
    int ids[1] = {2};
    init();
    CHECK(VELOC_Mem_protect(2, field + 9, 3, sizeof(double)) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("shared", 1) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "share bytes") != NULL);
    CHECK(VELOC_Restart_test("shared", 0) == VELOC_FAILURE);
    /* Regions that share bytes can be saved in two parts of a checkpoint. */
    CHECK(VELOC_Checkpoint_begin("shared", 2) == VELOC_SUCCESS);
    set(10);
    CHECK(VELOC_Checkpoint_selective(VELOC_CKPT_REST, ids, 1) == VELOC_SUCCESS);
    field[9] = -1;
    CHECK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    set(11);
    CHECK(VELOC_Restart("shared", 2) == VELOC_SUCCESS && field[9] == -1);
    field[9] = 10 + 9;
    CHECK(is_set(10));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void another_process(void)
{
    int code, step_of_3 = step;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(VELOC_Checkpoint("heat", 99) == VELOC_FAILURE);
        CHECK(strstr(tf_error_message(), "fork") != NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &code, 0) == child && code == 0);
    CHECK(VELOC_Checkpoint("heat", 99) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    /* A client with another identifier has no checkpoint of its own, but can read those of the first. */
    CHECK(VELOC_Init_single(4, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(1, field, COUNT, sizeof(double)) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    CHECK(VELOC_Restart_test_rank("heat", 0, 3) == 99);
    CHECK(VELOC_Restart_begin_rank("heat", 99, 3) == VELOC_SUCCESS);
    step = -1;
    CHECK(VELOC_Recover_mem() == VELOC_SUCCESS && step == step_of_3);
    CHECK(VELOC_Restart_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void cleaned(void)
{
    init();
    CHECK(VELOC_Cleanup("heat") == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    init();
    /* VELOC_Cleanup leaves checkpoints on persistent storage. */
    CHECK(VELOC_Restart_test("heat", 0) == 99);
    CHECK(VELOC_Restart("heat", 99) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    /* Without a persistent directory, it removes all. */
    unsetenv("VELOC_PERSISTENT");
    CHECK(setenv("VELOC_MODE", "sync", 1) == 0);
    CHECK(VELOC_Init_single(5, "") == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("heat", 1) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_finished() == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == 1);
    CHECK(VELOC_Cleanup("heat") == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* Persistent storage is taken away: the error names the versions that did not get there. */
static void lost(const char *directory)
{
    char command[5000];
    CHECK(setenv("VELOC_MODE", "async", 1) == 0);
    CHECK(setenv("VELOC_CLOSING_PATIENCE", "2", 1) == 0);
    snprintf(command, sizeof command, "%s/lost", directory);
    CHECK(setenv("VELOC_PERSISTENT", command, 1) == 0);
    CHECK(VELOC_Init_single(6, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint("heat", 7) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    snprintf(command, sizeof command, "rm -r '%s/lost'", directory);
    CHECK(system(command) == 0);
    CHECK(VELOC_Checkpoint_begin("heat", 8) == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
    CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_FAILURE);
    CHECK(strstr(tf_error_message(), "version 8 of \"heat\" not durable and on this node alone") != NULL);
}

int main(int argc, char **argv)
{
    char path[4096];
    FILE *file;
    CHECK(argc == 2 || argc == 3);
    snprintf(path, sizeof path, "%s/veloc.cfg", argv[1]);
    config = path;
    file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "mode = async\nmax_versions = 3\nhost_cache = 1MiB\nhints = reverse\n");
    CHECK(fclose(file) == 0);
    snprintf(path + 2048, 2048, "%s/scratch", argv[1]);
    CHECK(setenv("VELOC_SCRATCH", path + 2048, 1) == 0);
    /* Persistent storage is a directory, or an object store that a URL names. */
    snprintf(path + 2048, 2048, "%s/persistent", argc == 3 ? argv[2] : argv[1]);
    CHECK(setenv("VELOC_PERSISTENT", path + 2048, 1) == 0);
    before_init();
    memory();
    another_run();
    regions_of_a_name();
    files(argv[1]);
    no_way_for_a_file(argv[1]);
    shared_bytes();
    init();
    another_process();
    cleaned();
    lost(argv[1]);
    return 0;
}

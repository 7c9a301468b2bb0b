/* Calls of VELOC's client API that fail: what they leave, and what the calls after them do. */
#include "check.h"
#include "veloc.h"

#include <string.h>

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

/* The number of the head is taken: no part stays. */
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
    else
        CHECK(!"the second argument is a case");
    return 0;
}

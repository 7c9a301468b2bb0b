/* The door VELOC of the campaigns: see README.md. `node_local` is its scratch directory, `external` its persistent one. */
#define VELOC_WITHOUT_MPI
#include "veloc.h"

#include "door.h"

static const char *const NAME = "state";

static void door_open(int count, char **words)
{
    int at;
    setenv("VELOC_DEVICE", "host", 1);
    setenv("VELOC_HOST_CACHE", "33554432", 1);
    for (at = 1; at < count; at++) {
        char key[64], *value = strchr(words[at], '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - words[at]), words[at]);
        if (strcmp(key, "node_local") == 0) setenv("VELOC_SCRATCH", value + 1, 1);
        if (strcmp(key, "external") == 0) setenv("VELOC_PERSISTENT", value + 1, 1);
        if (strcmp(key, "node_local_limit") == 0) setenv("VELOC_SCRATCH_LIMIT", value + 1, 1);
        if (strcmp(key, "host_cache") == 0) setenv("VELOC_HOST_CACHE", value + 1, 1);
        if (strcmp(key, "closing_patience") == 0) setenv("VELOC_CLOSING_PATIENCE", value + 1, 1);
        if (strcmp(key, "keep_newest") == 0) setenv("VELOC_MAX_VERSIONS", value + 1, 1);
    }
    if (VELOC_Init_single(0, "") != VELOC_SUCCESS) exit(1);
}

static uint64_t door_latest(void)
{
    int version = VELOC_Restart_test(NAME, 0);
    return version < 0 ? 0 : (uint64_t)version;
}

static int door_checkpoint(uint64_t version, void *bytes, uint64_t size)
{
    return VELOC_Mem_protect(0, bytes, (size_t)size, 1) != VELOC_SUCCESS
           || VELOC_Checkpoint_begin(NAME, (int)version) != VELOC_SUCCESS
           || VELOC_Checkpoint_mem() != VELOC_SUCCESS || VELOC_Checkpoint_end(1) != VELOC_SUCCESS;
}

static int door_wait(void)
{
    return VELOC_Checkpoint_wait() != VELOC_SUCCESS;
}

static int door_wait_version(uint64_t version)
{
    (void)version;
    return door_wait();
}

static int door_is_durable(uint64_t version)
{
    (void)version;
    return VELOC_Checkpoint_finished() == VELOC_SUCCESS;
}

static uint64_t door_suspend(double seconds, int with_notice)
{
    (void)seconds;
    (void)with_notice;
    return 0;
}

static unsigned char *door_restore(uint64_t version, uint64_t *size)
{
    unsigned char *bytes = NULL;
    int64_t held = -1;
    if (VELOC_Restart_begin(NAME, (int)version) != VELOC_SUCCESS) return NULL;
    held = VELOC_Recover_bytes(0);
    if (held >= 0) {
        *size = (uint64_t)held;
        bytes = malloc((size_t)held + 1);
        if (VELOC_Mem_protect(0, bytes, (size_t)held, 1) != VELOC_SUCCESS || VELOC_Recover_mem() != VELOC_SUCCESS) {
            free(bytes);
            bytes = NULL;
        }
    }
    VELOC_Restart_end(bytes != NULL);
    return bytes;
}

static int door_close(void)
{
    return VELOC_Finalize(1) != VELOC_SUCCESS;
}

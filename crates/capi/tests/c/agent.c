/* An agent brings the versions of an engine and of VELOC's client to external storage. */
#include "check.h"
#include "veloc.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 50000 };

static unsigned char memory[BYTES];

/* Returns 1 if this process has no lock of external storage open, so the agent is the one that writes there. */
static int is_left_to_the_agent(const char *place)
{
    char path[512], name[4096];
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    ssize_t length;
    int found = 0;
    CHECK(all != NULL);
    while ((entry = readdir(all)) != NULL) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        length = readlink(path, name, sizeof name - 1);
        name[length < 0 ? 0 : length] = 0;
        found |= strstr(name, place) != NULL && strstr(name, "lock") != NULL;
    }
    CHECK(closedir(all) == 0);
    return !found;
}

static void engine(const char *home, const char *agent)
{
    char local[2048], external[2048];
    tf_region whole = {memory, BYTES, TF_PLACE_HOST};
    tf_options options;
    tf_engine engine;
    uint64_t version;
    int durable;
    snprintf(local, sizeof local, "%s/local", home);
    snprintf(external, sizeof external, "%s/external", home);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "1MiB") == TF_OK);
    CHECK(tf_options_set(options, "agent", agent) == TF_OK);
    CHECK(tf_options_set(options, "external", external) == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT && strstr(tf_error_message(), "node_local") != NULL);
    CHECK(tf_options_set(options, "node_local", local) == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    for (version = 1; version < 5; version++) {
        fill(memory, BYTES, (unsigned)version);
        CHECK(tf_checkpoint(engine, version, &whole, 1, NULL) == TF_OK);
    }
    CHECK(tf_wait(engine, 60) == TF_OK);
    CHECK(tf_is_durable(engine, 4, &durable) == TF_OK && durable == 1);
    CHECK(is_left_to_the_agent("/external/"));
    CHECK(tf_close(engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
}

static void client(const char *home, const char *agent)
{
    char config[2048];
    FILE *file;
    int version;
    snprintf(config, sizeof config, "%s/veloc.cfg", home);
    file = fopen(config, "w");
    CHECK(file != NULL);
    fprintf(file, "scratch = %s/s\npersistent = %s/p\nagent = %s\nmax_versions = 2\nhost_cache = 1MiB\n", home, home, agent);
    CHECK(fclose(file) == 0);
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, memory, BYTES, 1) == VELOC_SUCCESS);
    for (version = 1; version < 6; version++) {
        fill(memory, BYTES, (unsigned)version);
        CHECK(VELOC_Checkpoint("a", version) == VELOC_SUCCESS);
    }
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS && is_left_to_the_agent("/p/tierflow/"));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
    memset(memory, 0, BYTES);
    CHECK(VELOC_Init_single(3, config) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, memory, BYTES, 1) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("a", 0) == 5 && VELOC_Restart_test("a", 3) == VELOC_FAILURE);
    CHECK(VELOC_Restart("a", 4) == VELOC_SUCCESS && holds(memory, BYTES, 4));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    engine(argv[1], argv[2]);
    client(argv[1], argv[2]);
    return 0;
}

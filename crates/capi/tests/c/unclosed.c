/* A program that ends without closing its engine. Arguments: a directory, and what is to happen: "whole", "lost" or "callback". */

#include "check.h"

#include <string.h>

static void line(void *context, int level, const char *text)
{
    fprintf(stderr, "%s %d: %s\n", (const char *)context, level, text);
}

static void take_in(tf_engine engine, uint64_t first, uint64_t last)
{
    static char state[1 << 20];
    tf_region region = {0};
    uint64_t version;
    region.address = state;
    region.bytes = sizeof state;
    for (version = first; version <= last; version++)
        CHECK(tf_checkpoint(engine, version, &region, 1, NULL) == TF_OK);
}

int main(int argc, char **argv)
{
    static char place[4096], elsewhere[4096], mine[] = "mine";
    tf_options options;
    tf_engine engine;
    CHECK(argc == 3);
    CHECK(tf_log(9, line, mine) == TF_ARGUMENT);
    if (strcmp(argv[2], "callback") == 0) CHECK(tf_log(TF_LOG_INFO, line, mine) == TF_OK);
    CHECK(snprintf(place, sizeof place, "%s/run", argv[1]) > 0 && snprintf(elsewhere, sizeof elsewhere, "%s/gone", argv[1]) > 0);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "64MiB") == TF_OK);
    CHECK(tf_options_set(options, "external", place) == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    take_in(engine, 41, 41);
    if (strcmp(argv[2], "whole") != 0) {
        CHECK(tf_wait(engine, -1) == TF_OK);
        CHECK(rename(place, elsewhere) == 0);
    }
    take_in(engine, 42, 60);
    return 0;
}

/* The door C of the campaigns: see README.md. */
#include "door.h"

#include <math.h>

static tf_engine engine;

static void door_open(int count, char **words)
{
    tf_options options;
    int at, code = tf_options_new(&options) || tf_options_set(options, "device", "host")
                   || tf_options_set(options, "host_cache", "33554432");
    for (at = 1; at < count && code == 0; at++) {
        char key[64], *value = strchr(words[at], '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - words[at]), words[at]);
        if (strcmp(key, "run") != 0) code = tf_options_set(options, key, value + 1);
    }
    if (code != 0 || tf_open(options, NULL, &engine) != TF_OK) {
        failed("open");
        exit(1);
    }
    tf_options_free(options);
}

static uint64_t door_latest(void)
{
    uint64_t version;
    return tf_latest(engine, UINT64_MAX, &version) == TF_OK ? version : 0;
}

static int door_checkpoint(uint64_t version, void *bytes, uint64_t size)
{
    tf_region region = {bytes, size, TF_PLACE_HOST};
    return tf_checkpoint(engine, version, &region, 1, NULL);
}

static int door_wait(void)
{
    return tf_wait(engine, -1);
}

static int door_wait_version(uint64_t version)
{
    return tf_wait_version(engine, version, -1);
}

static int door_is_durable(uint64_t version)
{
    int durable = 0;
    return tf_is_durable(engine, version, &durable) == TF_OK && durable;
}

static uint64_t door_suspend(double seconds, int with_notice)
{
    tf_suspension suspension;
    tf_notice notice;
    int signals[1] = {SIGTERM};
    if (with_notice) {
        double left = INFINITY;
        if (tf_notice_open(signals, 1, seconds, &notice) != TF_OK) {
            failed("notice");
            return 0;
        }
        raise(SIGTERM);
        while (isinf(left) && tf_notice_left(notice, &left) == TF_OK) {
            sleep_for(0.001);
        }
    }
    if (tf_suspend(engine, seconds, &suspension) != TF_OK) {
        failed("suspend");
        return 0;
    }
    if (suspension.version == UINT64_MAX) return 0;
    if (tf_suspend_wait(engine, suspension.version, seconds) != TF_OK) {
        failed("suspend_wait");
        return 0;
    }
    return suspension.version;
}

static unsigned char *door_restore(uint64_t version, uint64_t *size)
{
    tf_region region = {NULL, 0, TF_PLACE_HOST};
    if (tf_size(engine, version, size) != TF_OK) return NULL;
    region.address = malloc((size_t)*size + 1);
    region.bytes = *size;
    if (tf_restore(engine, version, &region, 1, NULL) == TF_OK) return region.address;
    free(region.address);
    return NULL;
}

static int door_close(void)
{
    return tf_close(engine);
}

/* A program of release 0.1, compiled with its header. It stays as it is. Argument: an empty directory. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierflow.h"

#define CHECK(what)                                                                                      \
    do {                                                                                                 \
        if (!(what)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, tf_error_message());          \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static int released;

static int alone(void *context, const void *mine, void *all, size_t bytes, double seconds)
{
    (void)context;
    (void)seconds;
    memcpy(all, mine, bytes);
    return 0;
}

static void release(void *context)
{
    *(int *)context += 1;
}

int main(int argc, char **argv)
{
    static double field[1000], other[1000];
    /* The members in their order. */
    tf_region from = {field, sizeof field, TF_PLACE_HOST}, to = {other, sizeof other, TF_PLACE_HOST};
    tf_named named = {"field", {other, sizeof other, TF_PLACE_HOST}};
    tf_group group = {0, 1, 7, alone, release, &released, NULL, NULL, NULL, 0};
    tf_call call = {NULL, 60.0};
    tf_machine machine = {1.0, 2.0, 1000, 8000, 1e9, {{UINT64_MAX, 1e9, 1e9}}, 1};
    tf_options options;
    tf_engine engine;
    tf_metrics metrics;
    tf_suspension suspension;
    tf_schedule schedule;
    tf_action action;
    tf_difference found[2];
    tf_slot slot;
    void *address;
    size_t count, index;
    uint64_t version;
    double expected, bound;
    uint32_t ranks;

    CHECK(argc == 2);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "4MiB") == TF_OK);
    CHECK(tf_options_set(options, "external", argv[1]) == TF_OK);
    CHECK(tf_options_set(options, "nonsense", "1") == TF_ARGUMENT);
    CHECK(tf_open(options, &group, &engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);

    for (index = 0; index < 1000; index++)
        field[index] = (double)index;
    named.region.address = field;
    CHECK(tf_checkpoint_named(engine, 1, &named, 1, &call) == TF_OK);
    field[7] = -1;
    CHECK(tf_checkpoint(engine, 2, &from, 1, &call) == TF_OK);
    CHECK(tf_restore(engine, 2, &to, 1, NULL) == TF_OK && other[7] == -1);
    named.region.address = other;
    CHECK(tf_restore_named(engine, 1, &named, 1, &call) == TF_OK && other[7] == 7);
    CHECK(tf_produce(engine, 3, 800, &slot, &address) == TF_OK);
    memset(address, 3, 800);
    CHECK(tf_slot_end(slot, TF_FINISH, NULL) == TF_OK);
    CHECK(tf_latest(engine, UINT64_MAX, &version) == TF_OK && version == 3);
    CHECK(tf_metrics_read(engine, &metrics) == TF_OK);
    CHECK(metrics.checkpoint.count == 2 && metrics.checkpoint.bytes == 2 * sizeof field);
    CHECK(metrics.restore.count == 2 && metrics.produce.count == 1 && metrics.consume.count == 0);
    CHECK(tf_wait(engine, -1) == TF_OK);
    CHECK(tf_suspend(engine, 60, &suspension) == TF_OK);
    CHECK(suspension.version == 3 && suspension.newest == 3);
    CHECK(tf_close(engine) == TF_OK && tf_close(engine) == TF_CLOSED && released == 1);

    CHECK(tf_find(argv[1], UINT64_MAX, &version, &ranks) == TF_OK && version == 3 && ranks == 1);
    CHECK(tf_compare(argv[1], argv[1], "", -1, found, 2, &count) == TF_OK && count == 0);

    CHECK(tf_schedule_new(&machine, 20, &schedule) == TF_OK);
    CHECK(tf_schedule_times(schedule, &expected, &bound) == TF_OK && expected >= bound && bound > 0);
    for (index = 0; tf_schedule_next(schedule, &action) == TF_OK && action.kind != TF_ENDED;)
        index += action.kind == TF_REVERSE;
    CHECK(index == 20);
    CHECK(tf_schedule_free(schedule) == TF_OK);
    return 0;
}

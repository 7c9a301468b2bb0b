/* A job is preempted: a signal announces it, and the promised version is durable at the end. Argument: a directory. */

#include "check.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char state[1 << 16];
    tf_region region = {0};
    tf_options options;
    tf_engine engine;
    tf_notice notice, other;
    tf_suspension suspension;
    int signals[1] = {SIGTERM}, durable = 0;
    double left;
    uint64_t step;
    CHECK(argc == 2);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "4MiB") == TF_OK);
    CHECK(tf_options_set(options, "external", argv[1]) == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
    CHECK(tf_notice_open(signals, 1, 60, &notice) == TF_OK);
    CHECK(tf_notice_open(NULL, 0, 0, &other) == TF_OK);
    CHECK(tf_notice_left(notice, &left) == TF_OK && isinf(left));
    CHECK(tf_suspend(engine, 60, &suspension) == TF_OK && suspension.version == UINT64_MAX);
    region.address = state;
    region.bytes = sizeof state;
    for (step = 0;; step++) {
        memset(state, (int)step, sizeof state);
        CHECK(tf_checkpoint(engine, step, &region, 1, NULL) == TF_OK);
        if (step == 3) CHECK(raise(SIGTERM) == 0);
        CHECK(tf_notice_left(notice, &left) == TF_OK);
        if (!isinf(left)) break;
    }
    CHECK(step >= 3 && left > 0 && left <= 60);
    CHECK(tf_wait_version(engine, 0, 60) == TF_OK);
    CHECK(tf_suspend(engine, left, &suspension) == TF_OK);
    CHECK(suspension.version == step && suspension.newest == step && suspension.seconds >= 0);
    CHECK(tf_suspend_wait(engine, suspension.version, left) == TF_OK);
    CHECK(tf_is_durable(engine, step, &durable) == TF_OK && durable == 1);
    CHECK(tf_time_to_durable(engine, step, &left) == TF_OK && left == 0);
    CHECK(tf_suspend_to(engine, step + 1, 1, &suspension) == TF_UNKNOWN);
    CHECK(tf_suspend(engine, NAN, &suspension) == TF_ARGUMENT);
    CHECK(tf_notice_give(other, 5) == TF_OK);
    CHECK(tf_notice_left(other, &left) == TF_OK && left > 0 && left <= 5);
    CHECK(tf_notice_close(other) == TF_OK && tf_notice_close(other) == TF_CLOSED);
    CHECK(tf_notice_close(notice) == TF_OK);
    CHECK(tf_close(engine) == TF_OK);
    return 0;
}

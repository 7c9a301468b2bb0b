/* Compares a recurrence that is reversed by a schedule, with its states in an engine, with one whose states are all kept. */

#include "check.h"

#include <math.h>
#include <string.h>

#define CELLS 4096
#define STEPS 60

static double state[CELLS], seen[STEPS + 1][CELLS], adjoint[CELLS], truth[CELLS];

static void advance(const double *from, double *to)
{
    int cell;
    for (cell = 0; cell < CELLS; cell++)
        to[cell] = from[cell] + 0.1 * from[cell] * from[(cell + 1) % CELLS];
}

/* The adjoint of `advance` at a state. */
static void reverse(const double *at, double *of)
{
    double before[CELLS];
    int cell;
    for (cell = 0; cell < CELLS; cell++) {
        int left = (cell + CELLS - 1) % CELLS;
        before[cell] = of[cell] * (1 + 0.1 * at[(cell + 1) % CELLS]) + of[left] * 0.1 * at[left];
    }
    memcpy(of, before, sizeof before);
}

int main(int argc, char **argv)
{
    tf_options options;
    tf_engine engine;
    tf_machine machine;
    tf_schedule schedule;
    tf_action action;
    tf_region region = {0};
    double expected, bound, least, next[CELLS];
    uint64_t at = 0, reversed = 0, again = 0, version;
    int cell, step;
    CHECK(argc == 2);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "device_cache", "256KiB") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "512KiB") == TF_OK);
    CHECK(tf_options_set(options, "scratch", argv[1]) == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
    for (cell = 0; cell < CELLS; cell++) state[cell] = seen[0][cell] = 1.0 / (cell + 2);
    for (step = 0; step < STEPS; step++) advance(seen[step], seen[step + 1]);
    memcpy(truth, seen[STEPS], sizeof truth);
    for (step = STEPS; step-- > 0;) reverse(seen[step], truth);
    region.address = state;
    region.bytes = sizeof state;
    CHECK(tf_checkpoint(engine, 1000, &region, 1, NULL) == TF_OK);
    CHECK(tf_discard(engine, 1000) == TF_OK);
    CHECK(tf_machine_measure(engine, 1e-3, 1e-3, sizeof state, &machine) == TF_OK);
    CHECK(machine.device == 256 << 10 && machine.count == 2 && machine.tiers[0].room == 512 << 10 && machine.copy > 0);
    /* A state takes ten steps over this link. */
    machine.count = 1;
    machine.tiers[0].down = machine.tiers[0].up = sizeof state / 1e-2;
    CHECK(tf_machine_bound(&machine, STEPS, &least) == TF_OK);
    CHECK(tf_schedule_new(&machine, STEPS, &schedule) == TF_OK);
    CHECK(tf_schedule_times(schedule, &expected, &bound) == TF_OK);
    CHECK(bound == least && expected >= bound && bound > STEPS * 2e-3);
    for (;;) {
        CHECK(tf_schedule_next(schedule, &action) == TF_OK);
        if (action.kind == TF_ENDED) break;
        switch (action.kind) {
        case TF_FORWARD:
            CHECK(action.step == at && action.to > at);
            for (; at < action.to; at++, again++) {
                advance(state, next);
                memcpy(state, next, sizeof state);
            }
            break;
        case TF_SAVE:
            CHECK(action.step == at);
            CHECK(tf_checkpoint(engine, at, &region, 1, NULL) == TF_OK);
            break;
        case TF_END_FORWARD:
            CHECK(at == STEPS);
            memcpy(adjoint, state, sizeof adjoint);
            break;
        case TF_RESTART:
            at = action.step;
            CHECK(tf_restore(engine, at, &region, 1, NULL) == TF_OK);
            break;
        case TF_REVERSE:
            CHECK(action.step == at && at == STEPS - 1 - reversed);
            reverse(state, adjoint);
            reversed++;
            break;
        case TF_FORGET:
            CHECK(tf_discard(engine, action.step) == TF_OK);
            break;
        default:
            CHECK(0);
        }
    }
    CHECK(reversed == STEPS && again > STEPS);
    CHECK(memcmp(adjoint, truth, sizeof adjoint) == 0);
    CHECK(tf_latest(engine, UINT64_MAX, &version) == TF_UNKNOWN);
    CHECK(tf_schedule_next(schedule, &action) == TF_OK && action.kind == TF_ENDED);
    CHECK(tf_schedule_free(schedule) == TF_OK && tf_schedule_free(schedule) == TF_CLOSED);
    CHECK(tf_schedule_new(&machine, 0, &schedule) == TF_ARGUMENT);
    machine.forward = NAN;
    CHECK(tf_machine_bound(&machine, STEPS, &least) == TF_ARGUMENT);
    machine.count = 9;
    CHECK(tf_schedule_new(&machine, STEPS, &schedule) == TF_ARGUMENT);
    CHECK(tf_machine_bound(NULL, STEPS, &least) == TF_ARGUMENT);
    CHECK(tf_close(engine) == TF_OK);
    return 0;
}

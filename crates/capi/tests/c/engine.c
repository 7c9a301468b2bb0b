/* An engine from C: a history in three tiers, slots, every kind of error, several threads, and a fork. */
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 100000, VERSIONS = 40 };

static unsigned char memory[BYTES];

static tf_engine opened(const char *directory)
{
    tf_options options;
    tf_engine engine;
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "1MiB") == TF_OK);
    CHECK(tf_options_set(options, "scratch", directory) == TF_OK);
    CHECK(tf_options_set(options, "timeline", "1000") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
    CHECK(tf_options_free(options) == TF_CLOSED);
    return engine;
}

static void options_are_checked(const char *directory)
{
    tf_options options;
    tf_engine engine = 7;
    CHECK(tf_options_new(NULL) == TF_ARGUMENT);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "host_cash", "1MiB") == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "host_cash") != NULL);
    CHECK(tf_options_set(options, "host_cache", "much") == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "host_cache = much") != NULL);
    CHECK(tf_options_set(options, NULL, "1") == TF_ARGUMENT);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT);
    CHECK(tf_options_set(options, "storage_limit", "1MiB") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "storage_limit") != NULL);
    CHECK(tf_options_set(options, "scratch", directory) == TF_OK);
    CHECK(tf_open(options, NULL, NULL) == TF_ARGUMENT);
    CHECK(tf_options_set(options, "external", "/none/such") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_STORAGE);
    CHECK(tf_options_free(options) == TF_OK);
}

/* Compressed differences give the whole bytes back. Differences with a codec that has a bound are refused. */
static void compressed_differences(const char *directory)
{
    tf_options options;
    tf_engine engine;
    tf_region whole = {memory, BYTES, TF_PLACE_HOST};
    uint64_t version;
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "512KiB") == TF_OK);
    CHECK(tf_options_set(options, "scratch", directory) == TF_OK);
    CHECK(tf_options_set(options, "dedup_reads", "3") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "set `dedup`") != NULL);
    CHECK(tf_options_set(options, "dedup", "128") == TF_OK);
    CHECK(tf_options_set(options, "compress", "f32, wave = 1e-3") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "bounds") != NULL);
    CHECK(tf_options_set(options, "compress", "i8, storage") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "leave out `dedup`") != NULL);
    CHECK(tf_options_set(options, "compress", "i8, always") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    for (version = 0; version < VERSIONS; version++) {
        fill(memory, BYTES, (unsigned)version / 4);
        CHECK(tf_checkpoint(engine, version, &whole, 1, NULL) == TF_OK);
    }
    for (version = VERSIONS; version-- > 0;) {
        CHECK(tf_restore(engine, version, &whole, 1, NULL) == TF_OK);
        CHECK(holds(memory, BYTES, (unsigned)version / 4));
    }
    CHECK(tf_close(engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
}

/* Two directories form one tier. Each version goes to the one that is predicted to be faster. */
static void several_directories(const char *directory)
{
    char both[2048];
    snprintf(both, sizeof both, "%s:%s", directory, directory);
    tf_engine engine = opened(both);
    tf_region whole = {memory, BYTES, TF_PLACE_HOST};
    uint64_t version;
    for (version = 0; version < VERSIONS; version++) {
        fill(memory, BYTES, (unsigned)version);
        CHECK(tf_checkpoint(engine, version, &whole, 1, NULL) == TF_OK);
    }
    for (version = VERSIONS; version-- > 0;) {
        CHECK(tf_restore(engine, version, &whole, 1, NULL) == TF_OK);
        CHECK(holds(memory, BYTES, (unsigned)version));
    }
    CHECK(tf_close(engine) == TF_OK);
}

static void history(tf_engine engine)
{
    uint64_t order[VERSIONS], version, newest, bytes;
    size_t count;
    tf_metrics metrics;
    tf_region whole = {memory, BYTES, TF_PLACE_ANY};
    tf_region halves[2] = {{memory, 1000, TF_PLACE_HOST}, {memory + 1000, BYTES - 1000, TF_PLACE_HOST}};
    tf_call patient = {NULL, 60};
    for (version = 0; version < VERSIONS; version++)
        order[version] = VERSIONS - 1 - version;
    CHECK(tf_hint(engine, order + 2, VERSIONS - 2) == TF_OK);
    CHECK(tf_hint_next(engine, order, 2) == TF_OK);
    CHECK(tf_hint_next(engine, NULL, 2) == TF_ARGUMENT);
    for (version = 0; version < VERSIONS; version++) {
        fill(memory, BYTES, (unsigned)version);
        CHECK(tf_checkpoint(engine, version, &whole, 1, version % 2 ? &patient : NULL) == TF_OK);
    }
    CHECK(tf_checkpoint(engine, 3, &whole, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_latest(engine, UINT64_MAX, &newest) == TF_OK && newest == VERSIONS - 1);
    CHECK(tf_latest(engine, 5, &newest) == TF_OK && newest == 4);
    CHECK(tf_latest(engine, 0, &newest) == TF_UNKNOWN);
    CHECK(tf_size(engine, 5, &bytes) == TF_OK && bytes == BYTES);
    CHECK(tf_size(engine, 1000, &bytes) == TF_UNKNOWN);
    CHECK(tf_versions(engine, order, 2, &count) == TF_OK && count == VERSIONS && order[1] == 1);
    CHECK(tf_prefetch_start(engine) == TF_OK);
    for (version = VERSIONS; version-- > 0;) {
        memset(memory, 0, BYTES);
        CHECK(tf_restore(engine, version, halves, 2, version % 2 ? &patient : NULL) == TF_OK);
        CHECK(holds(memory, BYTES, (unsigned)version));
    }
    CHECK(tf_metrics_read(engine, &metrics) == TF_OK);
    CHECK(metrics.checkpoint.count == VERSIONS && metrics.restore.bytes == (uint64_t)VERSIONS * BYTES);
    CHECK(metrics.restores_from[0] + metrics.restores_from[1] == VERSIONS);
}

static void mistakes_are_told(tf_engine engine)
{
    tf_region twice[2] = {{memory, 60000, TF_PLACE_ANY}, {memory + 40000, 40000, TF_PLACE_ANY}};
    tf_region none = {NULL, 8, TF_PLACE_ANY};
    tf_region small = {memory, 8, TF_PLACE_ANY};
    tf_region endless = {memory, UINT64_MAX, TF_PLACE_ANY};
    tf_call on_stream = {memory, 0};
    tf_region whole = {memory, BYTES, TF_PLACE_ANY};
    tf_region on_gpu = {memory, BYTES, TF_PLACE_DEVICE}, nowhere = {memory, BYTES, 9};
    CHECK(tf_checkpoint(engine, 100, &on_gpu, 1, NULL) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "TF_PLACE_DEVICE") != NULL);
    CHECK(tf_checkpoint(engine, 100, &nowhere, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_restore(engine, 1, &nowhere, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_restore(engine, 1, twice, 2, NULL) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "share bytes") != NULL);
    CHECK(tf_checkpoint(engine, 100, &none, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_checkpoint(engine, 100, &endless, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_checkpoint(engine, 100, NULL, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_checkpoint(engine, 100, NULL, 0, NULL) == TF_ARGUMENT);
    CHECK(tf_checkpoint(engine, 100, &whole, 1, &on_stream) == TF_ARGUMENT);
    CHECK(tf_restore(engine, 1, &small, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_restore(engine, 1000, &small, 1, NULL) == TF_UNKNOWN);
    CHECK(tf_checkpoint(0, 1, &small, 1, NULL) == TF_ARGUMENT);
    CHECK(tf_checkpoint(engine + 1000, 1, &small, 1, NULL) == TF_CLOSED);
    CHECK(tf_wait(engine, 0.0 / 0.0) == TF_ARGUMENT);
    CHECK(tf_latest(engine, 5, NULL) == TF_ARGUMENT);
}

static void slots(tf_engine engine)
{
    tf_slot slot;
    void *room;
    const void *lent;
    size_t bytes;
    CHECK(tf_produce(engine, 200, 5000, &slot, &room) == TF_OK);
    fill(room, 5000, 200);
    CHECK(tf_close(engine) == TF_ARGUMENT);
    CHECK(tf_slot_end(slot, 5, NULL) == TF_ARGUMENT);
    // An engine on the host has no streams: the call fails, and the slot stays as it was.
    CHECK(tf_slot_end(slot, TF_FINISH, &bytes) == TF_ARGUMENT);
    CHECK(tf_slot_end(slot, TF_GIVE_UP, &bytes) == TF_ARGUMENT);
    CHECK(tf_end(engine) == TF_ARGUMENT);
    CHECK(tf_slot_end(slot, TF_FINISH, NULL) == TF_OK);
    CHECK(tf_slot_end(slot, TF_FINISH, NULL) == TF_CLOSED);
    CHECK(tf_consume(engine, 200, &slot, &lent, &bytes) == TF_OK);
    CHECK(bytes == 5000 && holds(lent, bytes, 200));
    CHECK(tf_slot_end(slot, TF_GIVE_UP, NULL) == TF_OK);
    CHECK(tf_produce(engine, 201, 5000, &slot, &room) == TF_OK);
    CHECK(tf_slot_end(slot, TF_GIVE_UP, NULL) == TF_OK);
    CHECK(tf_consume(engine, 201, &slot, &lent, &bytes) == TF_UNKNOWN);
    CHECK(tf_produce(engine, 201, 5000, &slot, &room) == TF_OK);
    CHECK(tf_slot_end(slot, TF_DROP, NULL) == TF_OK);
    CHECK(tf_slot_end(slot, TF_DROP, NULL) == TF_CLOSED);
    CHECK(tf_consume(engine, 201, &slot, &lent, &bytes) == TF_UNKNOWN);
    CHECK(tf_discard(engine, 200) == TF_OK);
    CHECK(tf_discard(engine, 200) == TF_UNKNOWN);
}

static tf_engine shared;

static void *works(void *number)
{
    unsigned char own[4096];
    tf_region region = {own, sizeof own, TF_PLACE_ANY};
    uint64_t first = 1000 * (uint64_t)(size_t)number, version;
    for (version = first; version < first + 20; version++) {
        fill(own, sizeof own, (unsigned)version);
        CHECK(tf_checkpoint(shared, version, &region, 1, NULL) == TF_OK);
    }
    for (version = first; version < first + 20; version++) {
        CHECK(tf_restore(shared, version, &region, 1, NULL) == TF_OK);
        CHECK(holds(own, sizeof own, (unsigned)version));
        CHECK(tf_discard(shared, version) == TF_OK);
        CHECK(tf_restore(shared, version, &region, 1, NULL) == TF_UNKNOWN);
        CHECK(strstr(tf_error_message(), "is gone") != NULL);
    }
    return NULL;
}

static void threads(tf_engine engine)
{
    pthread_t all[4];
    size_t number;
    shared = engine;
    for (number = 0; number < 4; number++)
        CHECK(pthread_create(&all[number], NULL, works, (void *)(number + 1)) == 0);
    for (number = 0; number < 4; number++)
        CHECK(pthread_join(all[number], NULL) == 0);
}

static void a_fork_has_an_engine_of_its_own(tf_engine engine, const char *directory)
{
    tf_region region = {memory, BYTES, TF_PLACE_ANY};
    int code;
    pid_t child;
#ifdef __SANITIZE_ADDRESS__
    /* The sanitizer does not release its locks in a forked child: a lock that another thread holds stays locked there. */
    CHECK(tf_wait(engine, 60) == TF_OK);
    CHECK(nanosleep(&(struct timespec){0, 100000000}, NULL) == 0);
#endif
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        tf_engine own;
        CHECK(tf_checkpoint(engine, 500, &region, 1, NULL) == TF_CLOSED);
        CHECK(strstr(tf_error_message(), "fork") != NULL);
        CHECK(tf_close(engine) == TF_CLOSED);
        own = opened(directory);
        CHECK(tf_checkpoint(own, 500, &region, 1, NULL) == TF_OK);
        CHECK(tf_close(own) == TF_OK);
        _exit(0);
    }
    CHECK(waitpid(child, &code, 0) == child && code == 0);
    CHECK(tf_checkpoint(engine, 500, &region, 1, NULL) == TF_OK);
}

/* Reserved numbers are above those of all versions and hints, and each is reserved once. */
static void numbers_are_reserved(tf_engine engine)
{
    uint64_t first = 0, next = 0, hinted[2] = {1000000, 1000001};

    CHECK(tf_hint(engine, hinted, 2) == TF_OK);
    CHECK(tf_forget_hints_of(engine, hinted, 1) == TF_OK);
    CHECK(tf_reserve(engine, 5, &first) == TF_OK && first == 1000002);
    CHECK(tf_forget_hints_of(engine, hinted, 2) == TF_OK);
    CHECK(tf_reserve(engine, 1, &next) == TF_OK && next == first + 5);
    CHECK(tf_reserve(engine, UINT64_MAX, &next) == TF_ARGUMENT && next == first + 5);
    CHECK(tf_reserve(engine, 1, NULL) == TF_ARGUMENT);
}

/* Regions are listed, and calls wait for a slot no longer than the given time. */
static void regions_and_limits(tf_engine engine)
{
    tf_named parts[2] = {{"head", {memory, 100, TF_PLACE_HOST}}, {"body", {memory + 100, BYTES - 100, TF_PLACE_HOST}}};
    char name[16];
    uint64_t bytes = 0;
    tf_slot slot = 0;
    void *address;
    const void *read;
    size_t length;
    CHECK(tf_checkpoint_named(engine, 700, parts, 2, NULL) == TF_OK);
    CHECK(tf_region_at(engine, 700, 1, name, sizeof name, &bytes) == TF_OK);
    CHECK(strcmp(name, "body") == 0 && bytes == BYTES - 100);
    CHECK(tf_region_at(engine, 700, 0, name, 3, NULL) == TF_OK && strcmp(name, "he") == 0);
    CHECK(tf_region_at(engine, 700, 2, name, sizeof name, &bytes) == TF_UNKNOWN);
    CHECK(tf_region_at(engine, 701, 0, name, sizeof name, &bytes) == TF_UNKNOWN);
    CHECK(tf_consume_within(engine, 700, 20, &slot, &read, &length) == TF_OK && length == BYTES);
    CHECK(tf_slot_end(slot, TF_GIVE_UP, NULL) == TF_OK);
    CHECK(tf_consume_within(engine, 700, NAN, &slot, &read, &length) == TF_ARGUMENT);
    CHECK(tf_produce_within(engine, 710, BYTES, 20, &slot, &address) == TF_OK);
    CHECK(tf_slot_end(slot, TF_GIVE_UP, NULL) == TF_OK);
    CHECK(tf_produce_within(engine, 710, BYTES, NAN, &slot, &address) == TF_ARGUMENT);
}

/* Two engines share the memory of their pool. The pool ends with the last of them. */
static void a_pool_is_shared(const char *directory)
{
    tf_host_pool pool;
    tf_options options;
    tf_engine both[2];
    tf_region whole = {memory, BYTES, TF_PLACE_HOST};
    size_t engine;
    CHECK(tf_host_pool_new(8 << 20, 1 << 20, NULL) == TF_ARGUMENT);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "scratch", directory) == TF_OK);
    CHECK(tf_options_set(options, "scratch_checksums", "false") == TF_OK);
    /* An engine refuses a pool that is smaller than one slab. */
    CHECK(tf_host_pool_new(1 << 20, 2 << 20, &pool) == TF_OK && tf_options_set_pool(options, pool) == TF_OK);
    CHECK(tf_open(options, NULL, &both[0]) == TF_ARGUMENT && strstr(tf_error_message(), "slabs of a host pool") != NULL);
    CHECK(tf_host_pool_free(pool) == TF_OK);
    CHECK(tf_host_pool_new(8 << 20, 1 << 20, &pool) == TF_OK);
    CHECK(tf_options_set_pool(options, pool) == TF_OK);
    for (engine = 0; engine < 2; engine++)
        CHECK(tf_open(options, NULL, &both[engine]) == TF_OK);
    CHECK(tf_host_pool_free(pool) == TF_OK && tf_options_set_pool(options, pool) == TF_CLOSED);
    for (engine = 0; engine < 2; engine++) {
        fill(memory, BYTES, (unsigned)engine);
        CHECK(tf_checkpoint(both[engine], 1, &whole, 1, NULL) == TF_OK);
    }
    for (engine = 0; engine < 2; engine++) {
        CHECK(tf_restore(both[engine], 1, &whole, 1, NULL) == TF_OK && holds(memory, BYTES, (unsigned)engine));
        CHECK(tf_close(both[engine]) == TF_OK);
    }
    CHECK(tf_options_free(options) == TF_OK);
}

int main(int argc, char **argv)
{
    char path[4096], report[8192];
    tf_engine engine;
    size_t length;
    uint64_t usable;
    int durable;
    CHECK(argc == 2);
    CHECK(tf_error_message()[0] == 0 && tf_version()[0] != 0);
    several_directories(argv[1]);
    compressed_differences(argv[1]);
    options_are_checked(argv[1]);
    engine = opened(argv[1]);
    history(engine);
    mistakes_are_told(engine);
    slots(engine);
    threads(engine);
    a_fork_has_an_engine_of_its_own(engine, argv[1]);
    CHECK(tf_wait(engine, 60) == TF_OK);
    CHECK(tf_wait_version(engine, 500, -1) == TF_OK);
    CHECK(tf_is_durable(engine, 500, &durable) == TF_OK && durable == 1);
    CHECK(tf_resize_host_cache(engine, 1 << 19, 60, &usable) == TF_OK && usable == 1 << 19);
    CHECK(tf_resize_device_cache(engine, 0, 60, &usable) == TF_ARGUMENT);
    /* The cache does not grow beyond the size with which the engine was opened. */
    CHECK(tf_resize_host_cache(engine, (size_t)1 << 40, 60, &usable) == TF_OK && usable == 1 << 20);
    CHECK(tf_forget_hints(engine) == TF_OK);
    numbers_are_reserved(engine);
    CHECK(tf_resize_host_cache(engine, 1 << 20, 60, NULL) == TF_OK);
    regions_and_limits(engine);
    a_pool_is_shared(argv[1]);
    CHECK(tf_report(engine, report, sizeof report, &length) == TF_OK && strlen(report) == length);
    CHECK(strstr(report, "Calls blocked the application for ") != NULL);
    CHECK(tf_report(engine, report, 8, NULL) == TF_OK && strlen(report) == 7);
    CHECK(tf_open_metrics(engine, report, sizeof report, &length) == TF_OK);
    CHECK(strncmp(report, "# TYPE tierflow_", 16) == 0);
    CHECK(tf_statistics(engine, report, sizeof report, &length) == TF_OK);
    CHECK(strncmp(report, "{\"rank\":0,\"ranks\":1,", 20) == 0);
    snprintf(path, sizeof path, "%s/timeline.json", argv[1]);
    CHECK(tf_write_timeline(engine, path) == TF_OK && access(path, R_OK) == 0);
    CHECK(tf_write_timeline(engine, "/none/such") == TF_STORAGE);
    CHECK(tf_close(engine) == TF_OK);
    CHECK(tf_close(engine) == TF_CLOSED);
    CHECK(tf_wait(engine, 1) == TF_CLOSED);
    return 0;
}

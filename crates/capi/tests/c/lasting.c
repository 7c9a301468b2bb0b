/* Tests of versions that outlive their engine, and of a group of two ranks that are threads. */
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { BYTES = 20000, RANKS = 2 };

static const char *directory;

static tf_engine opened(const tf_group *group)
{
    tf_options options;
    tf_engine engine;
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "1MiB") == TF_OK);
    CHECK(tf_options_set(options, "external", directory) == TF_OK);
    CHECK(tf_options_set(options, "group_patience", "20") == TF_OK);
    CHECK(tf_open(options, group, &engine) == TF_OK);
    CHECK(tf_options_free(options) == TF_OK);
    return engine;
}

/* The barrier of the two threads. */
static pthread_barrier_t here;
static unsigned char table[RANKS][4096];

static int all_gather(void *context, const void *mine, void *all, size_t bytes, double seconds)
{
    size_t rank = *(size_t *)context, other;
    CHECK(bytes <= sizeof table[0] && seconds >= 0);
    memcpy(table[rank], mine, bytes);
    pthread_barrier_wait(&here);
    for (other = 0; other < RANKS; other++)
        memcpy((char *)all + other * bytes, table[other], bytes);
    pthread_barrier_wait(&here);
    return 0;
}

static int released[RANKS];

static void release(void *context)
{
    released[*(size_t *)context]++;
}

/* A rank restores one region by its name, and a region of the other rank. */
static void by_name(tf_engine engine, uint32_t rank, unsigned char *own)
{
    tf_named parts[2] = {{"head", {own, 100, TF_PLACE_ANY}}, {"body", {own + 100, BYTES - 100, TF_PLACE_ANY}}};
    tf_named again = {"head", {own, 100, TF_PLACE_ANY}};
    uint64_t bytes;
    fill(own, BYTES, 50 + rank);
    CHECK(tf_checkpoint_named(engine, 5, parts, 2, NULL) == TF_OK);
    CHECK(tf_wait(engine, 20) == TF_OK);
    pthread_barrier_wait(&here);
    memset(own, 0, BYTES);
    CHECK(tf_restore_named(engine, 5, &parts[1], 1, NULL) == TF_OK && own[0] == 0 && own[99] == 0);
    CHECK(tf_restore_named(engine, 5, parts, 1, NULL) == TF_OK && holds(own, BYTES, 50 + rank));
    CHECK(tf_region_size(engine, 5, "body", &bytes) == TF_OK && bytes == BYTES - 100);
    CHECK(tf_region_size(engine, 5, "tail", &bytes) == TF_ARGUMENT);
    again.name = "tail";
    CHECK(tf_restore_named(engine, 5, &again, 1, NULL) == TF_ARGUMENT);
    again.name = "head";
    CHECK(tf_restore_rank(engine, 5, 1 - rank, &again, 1) == TF_OK && holds(own, 100, 51 - rank));
    CHECK(tf_restore_rank(engine, 5, 2, &again, 1) == TF_ARGUMENT);
    CHECK(tf_restore_rank(engine, 9, 0, &again, 1) == TF_UNKNOWN);
    pthread_barrier_wait(&here);
}

static void *takes_part(void *context)
{
    size_t rank = *(size_t *)context;
    unsigned char own[BYTES];
    tf_region region = {own, BYTES - rank, TF_PLACE_ANY};
    tf_group group;
    tf_engine engine;
    uint64_t newest;
    memset(&group, 0, sizeof group);
    group.rank = (uint32_t)rank;
    group.ranks = RANKS;
    group.all_gather = all_gather;
    group.release = release;
    group.context = context;
    engine = opened(&group);
    CHECK(tf_latest(engine, UINT64_MAX, &newest) == TF_UNKNOWN);
    fill(own, BYTES, (unsigned)rank);
    CHECK(tf_checkpoint(engine, 1, &region, 1, NULL) == TF_OK);
    /* A version that only rank 0 has does not count for the group. */
    if (rank == 0)
        CHECK(tf_checkpoint(engine, 2, &region, 1, NULL) == TF_OK);
    CHECK(tf_close(engine) == TF_OK);
    pthread_barrier_wait(&here);
    engine = opened(&group);
    CHECK(tf_latest(engine, UINT64_MAX, &newest) == TF_OK && newest == 1);
    memset(own, 0, BYTES);
    CHECK(tf_restore(engine, 1, &region, 1, NULL) == TF_OK && holds(own, BYTES - rank, (unsigned)rank));
    by_name(engine, (uint32_t)rank, own);
    CHECK(tf_close(engine) == TF_OK);
    return NULL;
}

static void a_group_of_threads(void)
{
    pthread_t all[RANKS];
    size_t ranks[RANKS] = {0, 1}, rank;
    CHECK(pthread_barrier_init(&here, NULL, RANKS) == 0);
    for (rank = 0; rank < RANKS; rank++)
        CHECK(pthread_create(&all[rank], NULL, takes_part, &ranks[rank]) == 0);
    for (rank = 0; rank < RANKS; rank++) {
        CHECK(pthread_join(all[rank], NULL) == 0);
        CHECK(released[rank] == 2);
    }
}

static void a_group_that_no_engine_has_is_released(void)
{
    static size_t mine = 0;
    int before = released[mine];
    tf_options options;
    tf_engine engine;
    tf_group group;
    memset(&group, 0, sizeof group);
    group.ranks = 1;
    group.all_gather = all_gather;
    group.release = release;
    group.context = &mine;
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_open(options, &group, NULL) == TF_ARGUMENT && released[mine] == before + 1);
    CHECK(tf_options_free(options) == TF_OK);
    CHECK(tf_open(options, &group, &engine) == TF_CLOSED && released[mine] == before + 2);
    group.rank = 1;
    CHECK(tf_open(options, &group, &engine) == TF_ARGUMENT && released[mine] == before + 3);
}

static void another_number_of_ranks(void)
{
    unsigned char part[BYTES];
    tf_region pieces[2] = {{part, 7, TF_PLACE_ANY}, {part + 7, BYTES - 8, TF_PLACE_ANY}};
    tf_named head = {"head", {part, 100, TF_PLACE_HOST}};
    uint64_t version, bytes;
    uint32_t ranks;
    CHECK(tf_find(directory, UINT64_MAX, &version, &ranks) == TF_OK && version == 5 && ranks == RANKS);
    CHECK(tf_find(directory, 5, &version, &ranks) == TF_OK && version == 1);
    CHECK(tf_find(directory, 1, &version, &ranks) == TF_UNKNOWN);
    CHECK(tf_find("/none/such", 1, &version, &ranks) == TF_STORAGE);
    CHECK(tf_part_size(directory, 1, 1, &bytes) == TF_OK && bytes == BYTES - 1);
    CHECK(tf_part_size(directory, 1, 2, &bytes) == TF_ARGUMENT);
    CHECK(tf_restore_from(directory, 1, 1, pieces, 2) == TF_OK && holds(part, BYTES - 1, 1));
    pieces[1].place = TF_PLACE_DEVICE;
    CHECK(tf_restore_from(directory, 1, 1, pieces, 2) == TF_ARGUMENT);
    pieces[1].place = TF_PLACE_HOST;
    CHECK(tf_restore_from(directory, 1, 0, pieces, 2) == TF_ARGUMENT);
    CHECK(strstr(tf_error_message(), "holds 20000 bytes") != NULL);
    CHECK(tf_restore_from(directory, 7, 0, pieces, 2) == TF_UNKNOWN);
    /* A version with names is restored in part by a name, and as a whole into regions of other sizes. */
    CHECK(tf_restore_named_from(directory, 5, 1, &head, 1) == TF_OK && holds(part, 100, 51));
    pieces[1].bytes++;
    CHECK(tf_restore_from(directory, 5, 0, pieces, 2) == TF_OK && holds(part, BYTES, 50));
}

static void a_group_that_does_not_fit(void)
{
    tf_group group;
    tf_options options;
    tf_engine engine;
    memset(&group, 0, sizeof group);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "external", directory) == TF_OK);
    CHECK(tf_open(options, &group, &engine) == TF_ARGUMENT);
    group.ranks = 1;
    CHECK(tf_open(options, &group, &engine) == TF_ARGUMENT);
    /* The newest version in the directory belongs to a group of two ranks. */
    CHECK(tf_open(options, NULL, &engine) == TF_GROUP);
    CHECK(strstr(tf_error_message(), "a group of 2 ranks") != NULL);
    CHECK(tf_options_free(options) == TF_OK);
}

/* Compares two histories of three versions: the last two versions differ, and one history lacks a region. */
static void compared_histories(void)
{
    static double values[2][BYTES / sizeof(double)];
    char places[2][2048];
    tf_difference found[4];
    size_t history, count, version;
    for (history = 0; history < 2; history++) {
        tf_options options;
        tf_engine engine;
        tf_named all[2] = {{"wave", {values[history], BYTES, TF_PLACE_HOST}}, {"mask", {values[history], 8, TF_PLACE_HOST}}};
        snprintf(places[history], sizeof places[history], "%s/history-%zu", directory, history);
        CHECK(tf_options_new(&options) == TF_OK);
        CHECK(tf_options_set(options, "device", "host") == TF_OK);
        CHECK(tf_options_set(options, "host_cache", "1MiB") == TF_OK);
        CHECK(tf_options_set(options, "external", places[history]) == TF_OK);
        CHECK(tf_open(options, NULL, &engine) == TF_OK);
        for (version = 1; version <= 3; version++) {
            if (version > 1)
                values[history][7 * version] += (double)history;
            CHECK(tf_checkpoint_named(engine, version, all, version == 3 ? 1 + history : 1, NULL) == TF_OK);
        }
        CHECK(tf_close(engine) == TF_OK && tf_options_free(options) == TF_OK);
    }
    CHECK(tf_compare(places[0], places[0], "", -1, found, 4, &count) == TF_OK && count == 0);
    CHECK(tf_compare(places[0], places[1], "", -1, found, 4, &count) == TF_OK && count == 3);
    CHECK(found[0].version == 2 && found[0].rank == 0 && strcmp(found[0].region, "wave") == 0 && found[0].elements == BYTES);
    CHECK(found[0].first >= 14 * sizeof(double) && found[0].first < 15 * sizeof(double));
    CHECK(found[1].version == 3 && found[2].elements == 0 && strcmp(found[2].region, "mask") == 0);
    CHECK(tf_compare(places[0], places[1], "", -1, found, 1, &count) == TF_OK && count == 1 && found[0].version == 2);
    CHECK(tf_compare(places[0], places[1], "wave", 255, found, 4, &count) == TF_OK && count == 0);
    CHECK(tf_compare(places[0], places[1], "none", -1, found, 4, &count) == TF_ARGUMENT);
    CHECK(tf_compare(places[0], places[1], "", -1, found, 0, &count) == TF_ARGUMENT);
}

/* Calls without an engine restore compressed parts as they were given. */
static void compressed_parts(void)
{
    static float values[BYTES / sizeof(float)], back[BYTES / sizeof(float)];
    char place[2048];
    tf_options options;
    tf_engine engine;
    tf_named all = {"wave", {values, BYTES, TF_PLACE_HOST}}, again = {"wave", {back, BYTES, TF_PLACE_HOST}};
    tf_region pieces[2] = {{back, 400, TF_PLACE_ANY}, {(char *)back + 400, BYTES - 400, TF_PLACE_ANY}};
    uint64_t bytes;
    size_t index;
    for (index = 0; index < BYTES / sizeof(float); index++)
        values[index] = (float)(index % 7);
    snprintf(place, sizeof place, "%s/compressed", directory);
    CHECK(tf_options_new(&options) == TF_OK);
    CHECK(tf_options_set(options, "device", "host") == TF_OK);
    CHECK(tf_options_set(options, "host_cache", "1MiB") == TF_OK);
    CHECK(tf_options_set(options, "external", place) == TF_OK);
    CHECK(tf_options_set(options, "compress", "f32, always") == TF_OK);
    CHECK(tf_open(options, NULL, &engine) == TF_OK);
    CHECK(tf_checkpoint_named(engine, 1, &all, 1, NULL) == TF_OK);
    CHECK(tf_close(engine) == TF_OK && tf_options_free(options) == TF_OK);
    CHECK(tf_part_size(place, 1, 0, &bytes) == TF_OK && bytes == BYTES);
    CHECK(tf_restore_from(place, 1, 0, pieces, 2) == TF_OK && memcmp(values, back, BYTES) == 0);
    memset(back, 0, BYTES);
    CHECK(tf_restore_named_from(place, 1, 0, &again, 1) == TF_OK && memcmp(values, back, BYTES) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    directory = argv[1];
    a_group_of_threads();
    another_number_of_ranks();
    a_group_that_no_engine_has_is_released();
    a_group_that_does_not_fit();
    compressed_parts();
    compared_histories();
    return 0;
}

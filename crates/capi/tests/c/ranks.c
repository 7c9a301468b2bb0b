/*
 * Tests of VELOC's client API with a group of processes: a rank that comes late, the number of versions that are kept, and the files
 * that a rank opens and reads in a group of any size.
 *
 *   ranks DIRECTORY late|kept|opened|resized|lost RANKS
 *   ranks DIRECTORY many VERSIONS
 */
#define _GNU_SOURCE
#include "ranks.h"
#include "veloc.h"

#include <dirent.h>
#include <sys/inotify.h>

enum { COUNT = 1000, LATE = 1 };

static const char *directory;
static int field[COUNT];

static void set(int value)
{
    int index;
    for (index = 0; index < COUNT; index++)
        field[index] = value + index + own_rank;
}

static int is_set(int value)
{
    int index;
    for (index = 0; index < COUNT; index++)
        if (field[index] != value + index + own_rank)
            return 0;
    return 1;
}

/* Opens a client by a configuration of these lines. */
static void init(const char *more)
{
    char path[4096];
    FILE *file;
    tf_group group = group_of_ranks();
    snprintf(path, sizeof path, "%s/veloc-%d.cfg", directory, own_rank);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "mode = sync\nhost_cache = 1MiB\n%s", more);
    CHECK(fclose(file) == 0);
    CHECK(VELOC_Init_group(&group, path) == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, field, COUNT, sizeof(int)) == VELOC_SUCCESS);
}

static void shared_places(const char *more)
{
    char text[9000];
    snprintf(text, sizeof text, "scratch = %s/scratch\npersistent = %s/persistent\n%s", directory, directory, more);
    init(text);
}

static void a_history(void)
{
    int version;
    shared_places("");
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    for (version = 1; version <= 10; version++) {
        set(version);
        CHECK(VELOC_Checkpoint("heat", version) == VELOC_SUCCESS);
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void the_newest(void)
{
    shared_places("");
    CHECK(VELOC_Restart_test("heat", 0) == 10);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* A rank comes when the others have stopped waiting. The others start over, as programs do that find no checkpoint. */
static void one_is_late(void)
{
    int version, rank, newest;
    shared_places("group_patience = 1\n");
    for (rank = 0; own_rank == LATE && rank < all_ranks; rank++)
        while (rank != LATE && !shared->flags[rank])
            nap();
    newest = VELOC_Restart_test("heat", 0);
    shared->flags[own_rank] = 1;
    for (version = newest < 0 ? 1 : newest + 1; version < (newest < 0 ? 1 : newest + 1) + 3; version++) {
        set(100 + version);
        VELOC_Checkpoint("heat", version);
    }
    VELOC_Finalize(1);
    /* The call must say that it does not know the checkpoints, not that there is none. */
    CHECK(newest == VELOC_UNKNOWN);
}

static void nothing_is_lost(void)
{
    struct timespec a_little = {0, 300000000};
    shared_places("");
    if (own_rank == LATE)
        nanosleep(&a_little, NULL);
    CHECK(VELOC_Restart_test("heat", 0) == 10);
    CHECK(VELOC_Restart("heat", 10) == VELOC_SUCCESS && is_set(10));
    set(11);
    CHECK(VELOC_Checkpoint("heat", 11) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == 11);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* A program that never looks for checkpoints replaces one of the same number, and no other. */
static void never_asked(void)
{
    shared_places("");
    set(205);
    CHECK(VELOC_Checkpoint("heat", 5) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void the_others_stay(void)
{
    shared_places("");
    CHECK(VELOC_Restart_test("heat", 0) == 11);
    CHECK(VELOC_Restart("heat", 11) == VELOC_SUCCESS && is_set(11));
    CHECK(VELOC_Restart("heat", 5) == VELOC_SUCCESS && is_set(205));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* A group of another size cannot use the checkpoints. A single rank says so, in one line. */
static void another_size(void)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/errors", directory);
    CHECK(freopen(path, "a", stderr) != NULL);
    shared_places("");
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    /* Each rank reads a checkpoint of a rank of the old group. The calls are not collective, not even for the rank of its own number. */
    CHECK(VELOC_Restart_test_rank("heat", 0, own_rank) == 10);
    CHECK(VELOC_Restart_begin_rank("heat", 10, own_rank) == VELOC_SUCCESS);
    CHECK(VELOC_Recover_mem() == VELOC_SUCCESS && is_set(10) && VELOC_Restart_end(1) == VELOC_SUCCESS);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void it_is_said_once(void)
{
    char path[5000], line[2][5000];
    FILE *errors;
    snprintf(path, sizeof path, "%s/errors", directory);
    errors = fopen(path, "r");
    CHECK(errors != NULL && fgets(line[0], sizeof line[0], errors) != NULL);
    CHECK(strstr(line[0], "version 10 of \"heat\" is of 3 ranks and not used") != NULL);
    CHECK(fgets(line[1], sizeof line[1], errors) == NULL);
    fclose(errors);
}

/* Opens a client whose rank has a node of its own and no other storage. */
static void own_node(void)
{
    char text[5000];
    snprintf(text, sizeof text, "scratch = %s/node-%d\nmax_versions = 2\n", directory, own_rank);
    init(text);
}

static int life;

/* Opens a client whose rank has a node of its own. A node may be lost. */
static int protected_node(const char *more)
{
    char path[5000];
    FILE *file;
    tf_group group = group_of_ranks();
    snprintf(path, sizeof path, "%s/veloc-%d.cfg", directory, own_rank);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "mode = sync\nhost_cache = 1MiB\nscratch = %s/node-%d\nexchange = %s/exchange-%d\nfailure_domain = node-%d\n",
            directory, own_rank, directory, life, own_rank);
    fprintf(file, "ec_interval = 0\n%s", more);
    CHECK(fclose(file) == 0);
    snprintf(path, sizeof path, "%s/errors-%d", directory, life);
    CHECK(freopen(path, "a", stderr) != NULL);
    snprintf(path, sizeof path, "%s/veloc-%d.cfg", directory, own_rank);
    return VELOC_Init_group(&group, path);
}

static void nodes_protect(void)
{
    int version;
    CHECK(protected_node("") == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, field, COUNT, sizeof(int)) == VELOC_SUCCESS);
    for (version = 1; version <= 2; version++) {
        set(version);
        CHECK(VELOC_Checkpoint("heat", version) == VELOC_SUCCESS);
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void losses_are_refused(void)
{
    CHECK(protected_node("refuse_losses = true\n") == VELOC_FAILURE);
}

static void losses_are_said(void)
{
    CHECK(protected_node("") == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void all_is_back(void)
{
    CHECK(protected_node("refuse_losses = true\n") == VELOC_SUCCESS);
    CHECK(VELOC_Mem_protect(0, field, COUNT, sizeof(int)) == VELOC_SUCCESS);
    CHECK(VELOC_Restart_test("heat", 0) == 2);
    CHECK(VELOC_Restart("heat", 2) == VELOC_SUCCESS && is_set(2));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

/* Renames the directories of two nodes: takes the nodes away, or brings them back. */
static void move_nodes(const char *from, const char *to)
{
    char old[5000], new[5000];
    int node;
    for (node = 1; node <= 2; node++) {
        snprintf(old, sizeof old, "%s/%s-%d", directory, from, node);
        snprintf(new, sizeof new, "%s/%s-%d", directory, to, node);
        CHECK(rename(old, new) == 0);
    }
}

/* Returns the number of lines with these words in the errors of the current `life`. */
static int lines_with(const char *words, const char *more)
{
    char path[5000], line[5000];
    int count = 0;
    FILE *errors;
    snprintf(path, sizeof path, "%s/errors-%d", directory, life);
    errors = fopen(path, "r");
    CHECK(errors != NULL);
    while (fgets(line, sizeof line, errors) != NULL)
        count += strstr(line, words) != NULL && strstr(line, more) != NULL;
    fclose(errors);
    return count;
}

static void more_is_lost_than_nodes_protect(int ranks)
{
    run_ranks(ranks, nodes_protect, NULL);
    move_nodes("node", "away");
    life = 1;
    run_ranks(ranks, losses_are_refused, NULL);
    CHECK(lines_with("more is lost than the nodes protect", "rank 1 on node-1") == ranks);
    life = 2;
    run_ranks(ranks, losses_are_said, NULL);
    CHECK(lines_with("lost with their nodes: version 1 of \"heat\", version 2 of \"heat\"", "rank 1 on node-1") == 1);
    /* No line names the engine's own version numbers. */
    CHECK(lines_with("not all of the storage", "") == 0);
    move_nodes("node", "new");
    move_nodes("away", "node");
    life = 3;
    run_ranks(ranks, all_is_back, NULL);
    CHECK(lines_with("lost", "") == 0);
}

static size_t held(void)
{
    uint64_t none[1];
    size_t count;
    CHECK(tf_versions(VELOC_Engine(), none, 0, &count) == TF_OK);
    /* Each checkpoint has two versions: its part and its head. */
    return count / 2;
}

static void nodes_fill(void)
{
    int version;
    own_node();
    for (version = 1; version <= 40; version++) {
        set(version);
        CHECK(VELOC_Checkpoint("heat", version) == VELOC_SUCCESS);
        /* The two checkpoints to keep, and the newest one, of whose durability the other ranks do not know yet. */
        CHECK(held() <= 3);
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void nodes_have_two(void)
{
    own_node();
    CHECK(held() == 2);
    CHECK(VELOC_Restart_test("heat", 0) == 40);
    CHECK(VELOC_Restart_test("heat", 39) == 39);
    CHECK(VELOC_Restart_test("heat", 38) == VELOC_FAILURE);
    CHECK(VELOC_Restart("heat", 40) == VELOC_SUCCESS && is_set(40));
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all != NULL);
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

static void opens_few(int before)
{
    int opened = descriptors() - before;
    if (opened > 32)
        fprintf(stderr, "rank %d of %d has %d descriptors\n", own_rank, all_ranks, opened);
    CHECK(opened <= 32);
}

static void writes(void)
{
    int version, before = descriptors();
    shared_places("max_versions = 2\n");
    opens_few(before);
    CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE);
    for (version = 1; version <= 4; version++) {
        set(version);
        CHECK(VELOC_Checkpoint("heat", version) == VELOC_SUCCESS);
        opens_few(before);
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void restarts(void)
{
    int before = descriptors();
    shared_places("max_versions = 2\n");
    opens_few(before);
    CHECK(VELOC_Restart_test("heat", 0) == 4);
    CHECK(VELOC_Restart("heat", 4) == VELOC_SUCCESS && is_set(4));
    opens_few(before);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static int watching;
static long opened;

/* Counts how often the watched directories were opened. Files in them do not count. */
static void count_opened(void)
{
    char events[1 << 16] __attribute__((aligned(8)));
    ssize_t bytes;
    while ((bytes = read(watching, events, sizeof events)) > 0) {
        const char *at;
        for (at = events; at < events + bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            opened += (event->mask & IN_ISDIR) != 0 && event->len == 0;
            at += sizeof *event + event->len;
        }
    }
}

static void directories_are_read_by_few(int ranks)
{
    char path[5000];
    int rank;
    watching = inotify_init1(IN_NONBLOCK);
    CHECK(watching >= 0);
    for (rank = 0; rank < ranks; rank++) {
        snprintf(path, sizeof path, "%s/persistent/tierflow/ranks-%d/rank-%d", directory, ranks, rank);
        CHECK(inotify_add_watch(watching, path, IN_OPEN) >= 0);
    }
    run_ranks(ranks, restarts, count_opened);
    count_opened();
    close(watching);
    printf("%d ranks opened directories %ld times\n", ranks, opened);
    /* Each rank opens its own directory, and one rank opens all of them. */
    CHECK(opened > 0 && opened <= 24L * ranks);
}

static int versions;

static void writes_many(void)
{
    int version;
    CHECK(setenv("VELOC_MODE", "async", 1) == 0);
    shared_places("");
    for (version = 1; version <= versions; version++) {
        CHECK(VELOC_Checkpoint_begin("heat", version) == VELOC_SUCCESS);
        CHECK(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
        CHECK(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
    }
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

static void restarts_from_the_newest(void)
{
    double began = now();
    shared_places("");
    printf("opened after %.3f s, ", now() - began);
    CHECK(VELOC_Restart_test("heat", 0) == versions);
    CHECK(VELOC_Restart("heat", versions) == VELOC_SUCCESS);
    printf("restarted after %.3f s, %.3f s of the processor\n", now() - began, (double)clock() / CLOCKS_PER_SEC);
    CHECK(VELOC_Restart_test("heat", versions / 2) == versions / 2);
    CHECK(VELOC_Finalize(1) == VELOC_SUCCESS);
}

int main(int argc, char **argv)
{
    int ranks;
    CHECK(argc == 4);
    directory = argv[1];
    ranks = atoi(argv[3]);
    if (strcmp(argv[2], "late") == 0) {
        run_ranks(ranks, a_history, NULL);
        run_ranks(ranks, one_is_late, NULL);
        run_ranks(ranks, nothing_is_lost, NULL);
        run_ranks(ranks, never_asked, NULL);
        run_ranks(ranks, the_others_stay, NULL);
    } else if (strcmp(argv[2], "resized") == 0) {
        run_ranks(ranks, a_history, NULL);
        run_ranks(ranks - 1, another_size, NULL);
        it_is_said_once();
        /* A group of the right size must not get that line. */
        run_ranks(ranks, the_newest, NULL);
    } else if (strcmp(argv[2], "lost") == 0) {
        more_is_lost_than_nodes_protect(ranks);
    } else if (strcmp(argv[2], "kept") == 0) {
        run_ranks(ranks, nodes_fill, NULL);
        run_ranks(ranks, nodes_have_two, NULL);
    } else if (strcmp(argv[2], "many") == 0) {
        versions = ranks;
        run_ranks(1, writes_many, NULL);
        run_ranks(1, restarts_from_the_newest, NULL);
    } else {
        run_ranks(ranks, writes, NULL);
        directories_are_read_by_few(ranks);
    }
    return 0;
}

/*
 * Measures the memory, the threads and the descriptors of a rank, with RANKS processes that have an engine each.
 *
 *   cc sizes.c $(pkg-config --cflags --libs tierflow) -o sizes && ./sizes RANKS DIRECTORY [KEY=VALUE]...
 *
 * Each rank has a directory of its own below DIRECTORY, takes 200 checkpoints of 8 KiB and waits until they are durable. Then the parent
 * reads the numbers of the rank from /proc. Memory that processes share counts in equal parts (Pss): anonymous pages, and all pages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>
#include <unistd.h>

#include "tierflow.h"

#define CHECK(call)                                                             \
    do {                                                                        \
        if ((call) != TF_OK) {                                                  \
            fprintf(stderr, "%s: %s\n", #call, tf_error_message());             \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static void rank(int number, const char *home, char **more, int ready, int go)
{
    static char state[8192];
    char path[4096];
    tf_region region = {state, sizeof state, TF_PLACE_HOST};
    tf_options options;
    tf_engine engine;
    uint64_t version;
    char byte = 0;
    snprintf(path, sizeof path, "%s/%d", home, number);
    mkdir(path, 0700);
    CHECK(tf_options_new(&options));
    CHECK(tf_options_set(options, "device", "host"));
    CHECK(tf_options_set(options, "host_cache", "64MiB"));
    CHECK(tf_options_set(options, "external", path));
    for (; *more; more++) {
        char *value = strchr(*more, '=');
        if (value == NULL) exit(2);
        *value = 0;
        CHECK(tf_options_set(options, *more, value + 1));
        *value = '=';
    }
    CHECK(tf_open(options, NULL, &engine));
    CHECK(tf_options_free(options));
    for (version = 0; version < 200; version++) {
        memset(state, (int)version, sizeof state);
        CHECK(tf_checkpoint(engine, version, &region, 1, NULL));
    }
    CHECK(tf_wait(engine, 600));
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) < 0) exit(3);
    CHECK(tf_close(engine));
    exit(0);
}

static long of_file(pid_t process, const char *file, const char *key)
{
    char line[256];
    long value = -1;
    FILE *text;
    snprintf(line, sizeof line, "/proc/%d/%s", (int)process, file);
    text = fopen(line, "r");
    while (text && fgets(line, sizeof line, text))
        if (strncmp(line, key, strlen(key)) == 0) value = atol(line + strlen(key));
    if (text) fclose(text);
    return value;
}

static long descriptors(pid_t process)
{
    char path[64];
    long count = -2; /* . and .. */
    DIR *folder;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int ready[2], go[2], ranks, index;
    pid_t *processes;
    long most[5] = {0};
    char byte;
    if (argc < 3 || (ranks = atoi(argv[1])) < 1 || pipe(ready) || pipe(go)) return 2;
    processes = calloc((size_t)ranks, sizeof *processes);
    for (index = 0; index < ranks; index++) {
        processes[index] = fork();
        if (processes[index] == 0) {
            close(go[1]);
            rank(index, argv[2], argv + 3, ready[1], go[0]);
        }
    }
    close(ready[1]);
    for (index = 0; index < ranks; index++)
        if (read(ready[0], &byte, 1) != 1) return 1;
    for (index = 0; index < ranks; index++) {
        long now[5], of;
        now[0] = of_file(processes[index], "smaps_rollup", "Pss_Anon:");
        now[1] = of_file(processes[index], "smaps_rollup", "Pss:");
        now[2] = of_file(processes[index], "status", "VmHWM:");
        now[3] = of_file(processes[index], "status", "Threads:");
        now[4] = descriptors(processes[index]);
        for (of = 0; of < 5; of++)
            if (now[of] > most[of]) most[of] = now[of];
    }
    printf("%d ranks; the largest has %ld KiB of its own, %ld with its part of what is shared, at most %ld resident; %ld threads, "
           "%ld descriptors\n", ranks, most[0], most[1], most[2], most[3], most[4]);
    close(go[1]);
    for (index = 0; index < ranks; index++) wait(NULL);
    free(processes);
    return 0;
}

/* The common part of the doors C and VELOC of the campaigns: the words of README.md. Each door defines the functions declared here. */
#ifndef DOOR_H
#define DOOR_H

#include "tierflow.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 70001, BLOCK = 2048 };

static uint64_t run, next;
/* Opens the door. Called before all other functions. */
static void door_open(int count, char **options);
/* Returns the newest version, or 0 if there is none. */
static uint64_t door_latest(void);
/* Returns 0 on success, as all functions below. */
static int door_checkpoint(uint64_t version, void *bytes, uint64_t size);
static int door_wait(void);
static int door_wait_version(uint64_t version);
static int door_is_durable(uint64_t version);
/* Returns the version that is durable, or 0 if there is none. */
static uint64_t door_suspend(double seconds, int with_notice);
/* Returns the bytes of a version. The caller frees them. */
static unsigned char *door_restore(uint64_t version, uint64_t *size);
static int door_close(void);

static void report(const char *text)
{
    char line[600];
    int length = snprintf(line, sizeof line, "%.500s\n", text);
    if (write(1, line, (size_t)length) != length) _exit(8);
}

static void reportf(const char *what, uint64_t version, uint64_t more, int has_more)
{
    char line[100];
    if (has_more)
        snprintf(line, sizeof line, "%s %llu %llu", what, (unsigned long long)version, (unsigned long long)more);
    else
        snprintf(line, sizeof line, "%s %llu", what, (unsigned long long)version);
    report(line);
}

static void failed(const char *what)
{
    fprintf(stderr, "%s %llu: %s\n", what, (unsigned long long)next, tf_error_message());
}

static unsigned char *content(uint64_t of_run, uint64_t version, uint64_t size)
{
    uint64_t blocks = (size + BLOCK - 1) / BLOCK, block, at;
    unsigned char *bytes = malloc((size_t)(blocks * BLOCK + 1));
    for (block = 0; block < blocks; block++) {
        unsigned char *to = bytes + block * BLOCK;
        uint64_t head = of_run << 32 | version;
        memcpy(to, &head, 8);
        memcpy(to + 8, &block, 8);
        for (at = 16; at < BLOCK; at++)
            to[at] = (unsigned char)(at * 31 % 251);
    }
    return bytes;
}

static int checkpoint(uint64_t size)
{
    unsigned char *bytes = content(run, next, size);
    int code;
    reportf("begins", next, 0, 0);
    code = door_checkpoint(next, bytes, size);
    if (code == 0)
        reportf("took", next++, size, 1);
    else
        failed("checkpoint");
    free(bytes);
    return code;
}

static void wait_all(void)
{
    if (door_wait() == 0)
        report("all");
    else
        failed("wait");
}

static void wait_last(void)
{
    if (door_wait_version(next - 1) == 0)
        reportf("durable", next - 1, 0, 0);
    else
        failed("wait_version");
}

static void suspend(double seconds, int with_notice)
{
    uint64_t version = door_suspend(seconds, with_notice);
    if (version != 0) reportf("durable", version, 0, 0);
}

static void restore(uint64_t version)
{
    uint64_t size = 0, head = 0;
    unsigned char *bytes = door_restore(version, &size), *right;
    char line[600];
    if (bytes == NULL) {
        snprintf(line, sizeof line, "missing %llu %.400s", (unsigned long long)version, tf_error_message());
        for (char *at = line; *at; at++)
            if (*at == '\n') *at = ' ';
        report(line);
        return;
    }
    memcpy(&head, bytes, size < 8 ? size : 8);
    right = content(head >> 32, version, size);
    snprintf(line, sizeof line, "%s %llu %llu %llu", memcmp(right, bytes, size) == 0 ? "whole" : "torn",
             (unsigned long long)version, (unsigned long long)(head >> 32), (unsigned long long)size);
    report(line);
    free(right);
    free(bytes);
}

static void forks(int calls)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        char nothing[8] = {0};
        if (!calls) _exit(0);
        exit(door_checkpoint(next, nothing, sizeof nothing) == 0 ? 9 : 0);
    }
    waitpid(child, &status, 0);
    if (status != 0) reportf("forked", (uint64_t)status, 0, 0);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_for(double seconds)
{
    struct timespec time;
    time.tv_sec = (time_t)seconds;
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

static void go_on(uint64_t seed, double seconds)
{
    double end = seconds_now() + seconds;
    while (seconds <= 0 || seconds_now() < end) {
        uint64_t drawn;
        seed = seed * 6364136223846793005u + 1;
        drawn = seed >> 33;
        if (checkpoint(8 * (1 + drawn % 1500) * (drawn % 11 ? 1 : 100)) != 0)
            sleep_for(0.001);
        else if (drawn % 4 == 1)
            wait_all();
        else if (drawn % 4 != 2)
            wait_last();
    }
    wait_all();
}

static int act(const char *name, const char *value)
{
    double number = strtod(value, NULL);
    uint64_t whole = strtoull(value, NULL, 10);
    if (strcmp(name, "c") == 0) checkpoint(whole);
    else if (strcmp(name, "w") == 0) wait_last();
    else if (strcmp(name, "W") == 0) wait_all();
    else if (strcmp(name, "q") == 0) {
        if (door_is_durable(next - 1)) reportf("durable", next - 1, 0, 0);
    }
    else if (strcmp(name, "s") == 0) suspend(number, 0);
    else if (strcmp(name, "notice") == 0) suspend(number, 1);
    else if (strcmp(name, "p") == 0) sleep_for(number / 1e3);
    else if (strcmp(name, "r") == 0) restore(whole);
    else if (strcmp(name, "f") == 0) forks(0);
    else if (strcmp(name, "F") == 0) forks(1);
    else if (strcmp(name, "loop") == 0) go_on(whole, 0);
    else if (strcmp(name, "soak") == 0) go_on(run, number);
    else if (strcmp(name, "close") == 0) {
        if (door_close() != 0) {
            failed("close");
            exit(1);
        }
        report("closed");
    }
    else if (strcmp(name, "fail") == 0) return 1;
    else if (strcmp(name, "exit") == 0) exit(3);
    else if (strcmp(name, "quit") == 0) _exit(0);
    else if (strcmp(name, "term") == 0) raise(SIGTERM);
    else if (strcmp(name, "int") == 0) raise(SIGINT);
    else if (strcmp(name, "kill") == 0) raise(SIGKILL);
    else if (strcmp(name, "exec") == 0) execlp("true", "true", (char *)NULL);
    else if (strcmp(name, "return") != 0) {
        fprintf(stderr, "%s: no such action\n", name);
        return 9;
    }
    return 0;
}

int main(int count, char **words)
{
    int middle = 1, at, code = 0;
    while (strcmp(words[middle], "--") != 0)
        middle++;
    for (at = 1; at < middle; at++)
        if (strncmp(words[at], "run=", 4) == 0) run = strtoull(words[at] + 4, NULL, 10);
    door_open(middle, words);
    next = door_latest();
    if (next != 0) reportf("latest", next, 0, 0);
    next = next == 0 ? FIRST : next + 1;
    for (at = middle + 1; at < count && code == 0; at++) {
        char *value = strchr(words[at], ':');
        if (value != NULL) *value++ = 0;
        code = act(words[at], value == NULL ? "" : value);
    }
    return code;
}

#endif

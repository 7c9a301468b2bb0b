/* Checks that the newest checkpoints of VELOC's API in two directories are the same for every rank. */
#include "check.h"

#include <string.h>

int main(int argc, char **argv)
{
    uint64_t version[2], bytes[2];
    uint32_t ranks[2], rank;
    int index;
    CHECK(argc == 3);
    for (index = 0; index < 2; index++) {
        CHECK(tf_find(argv[index + 1], UINT64_MAX, &version[index], &ranks[index]) == TF_OK);
        /* The newest version is the checkpoint's head. The part has the number 255 below. */
        CHECK(version[index] % 256 == 255);
        version[index] -= 255;
    }
    CHECK(ranks[0] == ranks[1]);
    for (rank = 0; rank < ranks[0]; rank++) {
        unsigned char *part[2];
        for (index = 0; index < 2; index++) {
            tf_region region;
            CHECK(tf_part_size(argv[index + 1], version[index], rank, &bytes[index]) == TF_OK);
            part[index] = malloc(bytes[index]);
            CHECK(part[index] != NULL);
            region.address = part[index];
            region.bytes = bytes[index];
            region.place = TF_PLACE_HOST;
            CHECK(tf_restore_from(argv[index + 1], version[index], rank, &region, 1) == TF_OK);
        }
        CHECK(bytes[0] == bytes[1] && memcmp(part[0], part[1], bytes[0]) == 0);
        printf("rank %u: %llu bytes\n", rank, (unsigned long long)bytes[0]);
        free(part[0]);
        free(part[1]);
    }
    return 0;
}

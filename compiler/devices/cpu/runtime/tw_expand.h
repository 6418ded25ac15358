/* Constants of few values, which the file of weights holds as a codebook and indices: they are made dense once, when an instance is made.
 *
 * model.c defines, before including this file, EXPANDED_BYTES and the table `expansions`. Dense constants lie right before the file's
 * first byte, so that places of both kinds are counted from there. */
#pragma once
#include "tw_host.h"

/* Of each panel, depth by lanes, a column has a codebook of its own. */
static void expand(const struct expansion *one, char *first) {
    uint32_t *dense = (uint32_t *)(first + one->at);
    const uint32_t *book = (const uint32_t *)(first + one->place);
    if (one->bits == 32) { /* elements that have no index */
        memcpy(dense, book, 4 * (size_t)one->count);
        return;
    }
    const long panels = one->count / (one->depth * one->lanes);
    const uint8_t *const indices = (const uint8_t *)(book + ((panels * one->lanes) << one->bits));
    const int each = 8 / one->bits, mask = (1 << one->bits) - 1;
    long at = 0;
    for (long panel = 0; panel < panels; panel++, book += one->lanes << one->bits)
        for (long row = 0; row < one->depth; row++)
            for (long lane = 0; lane < one->lanes; lane++, at++)
                dense[at] = book[(lane << one->bits) + (indices[at / each] >> at % each * one->bits & mask)];
}

static int map_expanded_weights(const tw_config *config, struct weights *weights) {
    if (map_weights(config, weights)) return -1;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (EXPANDED_BYTES + page - 1) / page * page;
    char *const whole = mmap(NULL, before + weights->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return fail("out of memory: dense constants need %zu bytes", before);
    const char *const within = weights->data - (const char *)weights->mapping + whole + before;
    if (mremap(weights->mapping, weights->mapping_bytes, weights->mapping_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, whole + before) == MAP_FAILED) {
        munmap(whole, before + weights->mapping_bytes);
        return fail("cannot move the mapping of the weights: %s", strerror(errno));
    }
    *weights = (struct weights){whole, before + weights->mapping_bytes, within};
    for (int at = 0; at < EXPANSIONS; at++) expand(expansions + at, (char *)within);
    return 0;
}
#define map_weights map_expanded_weights

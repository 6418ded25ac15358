/* Constants that the file of weights holds as less than kernels read: they are made once, when an instance is made.
 *
 * model.c defines, before including this file, MADE_BYTES, and the tables `expansions` of constants of few values, held as codebooks and
 * indices, or as numbers and scales, `filters` of those that are transformed, and `repackings` of matrices in panels of other extents. What is
 * made lies right before the file's first byte, so that places of both kinds are counted from there. */
#pragma once
#include <string.h>
#ifndef __wasm__
#include "tw_host.h"
#endif

/* As many doubles as a register holds: compilers take longer vectors apart through memory. */
#ifdef __AVX__
#define TW_PART 4
#else
#define TW_PART 2
#endif
typedef double part __attribute__((vector_size(8 * TW_PART), aligned(8)));
enum { MOST_TAPS = 49, MOST_COLUMNS = 64 };

/* Winograd's G g G^T as compiler/forms/winograd.py computes it: products are exact, so that fusing them with sums changes nothing. */
static void transform(const struct filters *one, char *first) {
    const double *const numbers = (const double *)(first + one->numbers), *const scale = numbers + one->elements * one->taps;
    const float *from = (const float *)(first + one->place);
    float *to = (float *)(first + one->at);
    const long taps = one->taps, plane = one->depth * one->panel;
    for (long batch = 0; batch < one->batch; batch++, from += taps * one->depth * one->columns)
        for (long panel = 0; panel < one->panels; panel++, to += one->elements * plane) {
            const long begin = panel * one->panel, left = one->columns - begin, width = left < one->panel ? left : one->panel;
            double filter[MOST_TAPS * MOST_COLUMNS] __attribute__((aligned(64))) = {0};
            for (long k = 0; k < one->depth; k++) {
                for (long tap = 0; tap < taps; tap++)
                    for (long column = 0; column < width; column++)
                        filter[tap * one->panel + column] = from[(tap * one->depth + k) * one->columns + begin + column];
                for (long element = 0; element < one->elements; element++)
                    for (long column = 0; column < width; column += TW_PART) {
                        part sum = numbers[element * taps] * *(const part *)(filter + column);
                        for (long tap = 1; tap < taps; tap++)
                            sum += numbers[element * taps + tap] * *(const part *)(filter + tap * one->panel + column);
                        sum *= scale[element];
                        for (long at = 0; at < TW_PART && column + at < width; at++) to[element * plane + k * one->panel + column + at] = (float)sum[at];
                    }
            }
        }
}

/* Of each panel, depth by lanes, a column has a codebook of its own. */
static void expand(const struct expansion *one, char *first) {
    uint32_t *dense = (uint32_t *)(first + one->at);
    const uint32_t *book = (const uint32_t *)(first + one->place);
    if (one->bits == 32) { /* elements that have no index */
        memcpy(dense, book, 4 * (size_t)one->count);
        return;
    }
    const long panels = one->count / (one->depth * one->lanes);
    if (one->bits < 0) { /* numbers of 8 bits with a scale for each column */
        const float *scales = (const float *)book;
        const int8_t *number = (const int8_t *)(scales + panels * one->lanes);
        float *to = (float *)dense;
        for (long panel = 0; panel < panels; panel++, scales += one->lanes)
            for (long row = 0; row < one->depth; row++)
                for (long lane = 0; lane < one->lanes; lane++) *to++ = scales[lane] * (float)*number++;
        return;
    }
    const uint8_t *const indices = (const uint8_t *)(book + ((panels * one->lanes) << one->bits));
    const int each = 8 / one->bits, mask = (1 << one->bits) - 1;
    long at = 0;
    for (long panel = 0; panel < panels; panel++, book += one->lanes << one->bits)
        for (long row = 0; row < one->depth; row++)
            for (long lane = 0; lane < one->lanes; lane++, at++)
                dense[at] = book[(lane << one->bits) + (indices[at / each] >> at % each * one->bits & mask)];
}

/* Panels of `to` columns from panels of `from`: `depth` rows of those that are `deep`; what fills the last panel is zero already. */
static void repack(const struct repacking *one, char *first) {
    const float *from = (const float *)(first + one->place);
    float *to = (float *)(first + one->at);
    const long depth = one->depth, columns = one->columns;
    for (long batch = 0; batch < one->batch; batch++) {
        for (long column = 0, many; column < columns; column += many) {
            const long left = one->from - column % one->from, room = one->to - column % one->to;
            many = left < room ? left : room;
            if (many > columns - column) many = columns - column;
            const float *source = from + column / one->from * one->from * depth + column % one->from;
            float *target = to + column / one->to * one->to * one->deep + column % one->to;
            for (long row = 0; row < depth; row++) memcpy(target + row * one->to, source + row * one->from, 4 * (size_t)many);
        }
        from += (columns + one->from - 1) / one->from * one->from * depth;
        to += (columns + one->to - 1) / one->to * one->to * one->deep;
    }
}

/* All of them, before `first`, the file's first byte. */
static void make_constants(char *first) {
    for (int at = 0; at < EXPANSIONS; at++) expand(expansions + at, first);
    for (int at = 0; at < REPACKINGS; at++) repack(repackings + at, first); /* first: filters may be made of them */
    for (int at = 0; at < FILTERS; at++) transform(filters + at, first);
}

#ifndef __wasm__
static int map_expanded_weights(const tw_config *config, struct weights *weights) {
    if (map_weights(config, weights)) return -1;
    const size_t page = (size_t)map_unit(), before = (MADE_BYTES + page - 1) / page * page;
    char *const whole = map_zeros(before + weights->mapping_bytes), *const mapping = weights->mapping;
    if (!whole) return fail("out of memory: constants that are made need %zu bytes", before);
    const char *const within = weights->data - mapping + whole + before;
#ifdef __linux__
    if (mremap(mapping, weights->mapping_bytes, weights->mapping_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, whole + before) == MAP_FAILED) {
        unmap(whole, before + weights->mapping_bytes);
        return fail("cannot move the mapping of the weights: %s", strerror(errno));
    }
    madvise(whole, before, MADV_HUGEPAGE); /* a fault for each 4 KiB would take longer than making what lies there */
#else
    memcpy(whole + before, mapping, weights->mapping_bytes); /* no mapping can be moved */
    unmap(mapping, weights->mapping_bytes);
#endif
    make_constants((char *)within);
#ifdef __linux__
    madvise(whole + before, weights->mapping_bytes, MADV_DONTNEED); /* what kernels do not read too leaves this process's memory */
#endif
    *weights = (struct weights){whole, before + weights->mapping_bytes, within};
    return 0;
}
#define map_weights map_expanded_weights
#endif

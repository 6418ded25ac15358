/* Products of tiles (Intel AMX): eight registers of up to 16 rows of 64 bytes, of which the shapes are configured first.
 *
 * Registers are named by numbers, 0 to 7. A tile of A has rows of 16 groups, one of B has 16 rows of a group of each of 16 columns, one of
 * sums has 16 columns of 32 bits. A group is two bf16 or four bytes. Products of bf16 are added in fp32; subnormal numbers count as zero.
 * Where no instructions are meant to be used the same is done by loops: so kernels are tested where no core has tiles.
 */
#pragma once

/* Rows and bytes of a row of each register; what is 0 is not used. */
typedef struct __attribute__((packed, aligned(64))) {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tw_tile_shapes;

/* Asks for lines that are read soon, into the second-level cache. */
TW_INLINE void tw_tile_ahead(const char *p, int lines) {
    for (int line = 0; line < lines; line++) __builtin_prefetch(p + 64 * line, 0, 2);
}

#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
/* Linux gives tiles to processes that ask: all their threads may use them from then on. */
__attribute__((constructor)) static void tw_ask_for_tiles(void) { syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

TW_INLINE void tw_tiles_begin(const tw_tile_shapes *shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(*shapes)); }
TW_INLINE void tw_tiles_end(void) { __asm__ volatile("tilerelease" ::: "memory"); }
#define tw_tile_zero(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define tw_tile_load(t, p, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(p)), "r"((long)(step)) : "memory")
#define tw_tile_store(c, p, step) __asm__ volatile("tilestored %%tmm" #c ", (%0,%1,1)" ::"r"((void *)(p)), "r"((long)(step)) : "memory")
#define tw_tile_dot_bf16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define tw_tile_dot_bytes(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#else
typedef struct {
    char row[16][64];
} tw_tile;
static _Thread_local tw_tile_shapes tw_shapes;
static _Thread_local tw_tile tw_tiles[8];

TW_INLINE void tw_tiles_begin(const tw_tile_shapes *shapes) { tw_shapes = *shapes, memset(tw_tiles, 0, sizeof tw_tiles); }
TW_INLINE void tw_tiles_end(void) { memset(&tw_shapes, 0, sizeof tw_shapes); }
TW_INLINE void tw_tile_zero(int c) { memset(&tw_tiles[c], 0, sizeof tw_tiles[c]); }
TW_INLINE void tw_tile_load(int t, const void *p, long step) {
    tw_tile_zero(t);
    for (int row = 0; row < tw_shapes.rows[t]; row++) memcpy(tw_tiles[t].row[row], (const char *)p + row * step, tw_shapes.bytes[t]);
}
TW_INLINE void tw_tile_store(int c, void *p, long step) {
    for (int row = 0; row < tw_shapes.rows[c]; row++) memcpy((char *)p + row * step, tw_tiles[c].row[row], tw_shapes.bytes[c]);
}
/* c[m][n] += sum over k of a[m][k] . b[k][n]; a row of b and what it is multiplied with are groups. */
#define TW_EACH_PRODUCT(name, total, left, right, group, product) \
    TW_INLINE void name(int c, int a, int b) { \
        for (int m = 0; m < tw_shapes.rows[c]; m++) \
            for (int k = 0; k < tw_shapes.rows[b]; k++) \
                for (int n = 0; n < tw_shapes.bytes[c] / 4; n++) { \
                    left x[group]; \
                    right y[group]; \
                    total sum; \
                    memcpy(x, tw_tiles[a].row[m] + 4 * k, 4); \
                    memcpy(y, tw_tiles[b].row[k] + 4 * n, 4); \
                    memcpy(&sum, tw_tiles[c].row[m] + 4 * n, 4); \
                    for (int at = 0; at < group; at++) sum += product; \
                    memcpy(tw_tiles[c].row[m] + 4 * n, &sum, 4); \
                } \
    }
TW_EACH_PRODUCT(tw_tile_dot_bf16, float, tw_bf16, tw_bf16, 2, tw_from_bf16(x[at]) * tw_from_bf16(y[at]))
TW_EACH_PRODUCT(tw_tile_dot_bytes, uint32_t, uint8_t, int8_t, 4, (uint32_t)(x[at] * y[at]))
#endif

/* Elements of 8 bits and less in generated kernels: codes of one byte each, to and from floats. C and CUDA C++ alike.
 *
 * The formats are those of compiler/ir/small.py, which says what the parameters are; a test holds the two together. Rounding is half to even.
 */
#pragma once
#if defined(TW_DEVICE)
#define TW_SMALL TW_DEVICE
#define tw_small_word(x) __float_as_uint(x)
#define tw_small_float(word) __uint_as_float(word)
#else
#define TW_SMALL TW_INLINE
TW_SMALL uint32_t tw_small_word(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}
TW_SMALL float tw_small_float(uint32_t word) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}
#endif

TW_SMALL float tw_small_decoded(uint32_t code, int bits, int mantissa, int bias, uint32_t most, uint32_t beyond, uint32_t nan, int unsigned_zero) {
    const uint32_t sign = 1u << (bits - 1), magnitude = code & (sign - 1);
    const uint32_t minus = (code & sign) << (32 - bits);
    if (unsigned_zero && (code & (2 * sign - 1)) == nan) return tw_small_float(0x7fc00000u);
    if (magnitude > most) return tw_small_float(minus | (magnitude == beyond && beyond != nan ? 0x7f800000u : 0x7fc00000u));
    const float x = magnitude >> mantissa ? tw_small_float((magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23))
                                          : (float)magnitude * tw_small_float((uint32_t)(128 - bias - mantissa) << 23);
    return tw_small_float(tw_small_word(x) | minus);
}

TW_SMALL uint8_t tw_small_encoded(float x, int saturate, int bits, int mantissa, int bias, uint32_t most, uint32_t beyond, uint32_t nan, int unsigned_zero) {
    const uint32_t word = tw_small_word(x), sign = word >> 31 << (bits - 1), magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(unsigned_zero ? nan : nan ^ sign);
    uint32_t code;
    if ((int)(magnitude >> 23) >= 128 - bias) {
        const int shift = 23 - mantissa;
        const uint32_t rebased = magnitude - ((uint32_t)(127 - bias) << 23);
        code = (rebased + ((1u << (shift - 1)) - 1) + (rebased >> shift & 1)) >> shift;
    } else { /* a sum whose last place is the least number above zero */
        const uint32_t unit = (uint32_t)(151 - bias - mantissa) << 23;
        code = tw_small_word(tw_small_float(magnitude) + tw_small_float(unit)) - unit;
    }
    if (code > most) code = saturate ? most : beyond;
    if (code == 0 && unsigned_zero) return 0;
    return (uint8_t)(code | sign);
}

#define TW_SMALL_FLOAT(name, bits, mantissa, bias, most, beyond, nan, unsigned_zero) \
    TW_SMALL float tw_small_from_##name(uint8_t code) { \
        return tw_small_decoded(code, bits, mantissa, bias, most, beyond, nan, unsigned_zero); \
    } \
    TW_SMALL uint8_t tw_small_to_##name(float x, int saturate) { \
        return tw_small_encoded(x, saturate, bits, mantissa, bias, most, beyond, nan, unsigned_zero); \
    }
TW_SMALL_FLOAT(f8e4m3fn, 8, 3, 7, 0x7e, 0x7f, 0x7f, 0)
TW_SMALL_FLOAT(f8e4m3fnuz, 8, 3, 8, 0x7f, 0x80, 0x80, 1)
TW_SMALL_FLOAT(f8e5m2, 8, 2, 15, 0x7b, 0x7c, 0x7e, 0)
TW_SMALL_FLOAT(f8e5m2fnuz, 8, 2, 16, 0x7f, 0x80, 0x80, 1)
TW_SMALL_FLOAT(f6e2m3, 6, 3, 1, 0x1f, 0x1f, 0x20, 0)
TW_SMALL_FLOAT(f6e3m2, 6, 2, 3, 0x1f, 0x1f, 0x20, 0)
TW_SMALL_FLOAT(f4e2m1, 4, 1, 1, 0x7, 0x7, 0x8, 0)

/* Powers of two: code n is 2^(n - 127), 255 is NaN. */
enum { TW_SMALL_NEAREST, TW_SMALL_UP, TW_SMALL_DOWN };
TW_SMALL float tw_small_from_f8e8m0(uint8_t code) {
    return tw_small_float(code == 255 ? 0x7fc00000u : code ? (uint32_t)code << 23 : 0x00400000u);
}
TW_SMALL uint8_t tw_small_to_f8e8m0(float x, int saturate, int rounding) {
    const uint32_t word = tw_small_word(x) & 0x7fffffffu;
    if (x != x || (word && word != tw_small_word(x))) return 255;
    if (word < 0x00400000u) return saturate ? 0 : 255;
    const uint32_t rest = word < 0x00800000u ? (word - 0x00400000u) << 1 : word & 0x007fffffu;
    const uint32_t raised = rounding == TW_SMALL_UP ? rest > 0 : rounding == TW_SMALL_NEAREST ? rest >= 0x00400000u : 0;
    const uint32_t code = (word >> 23) + raised;
    return (uint8_t)(code < 255 ? code : saturate ? 254 : 255);
}

/* Integers: the bits of a byte that are not theirs are 0, and nothing is read of them. */
TW_SMALL int8_t tw_small_from_i4(uint8_t code) { return (int8_t)((code & 15) - ((code & 8) << 1)); }
TW_SMALL int8_t tw_small_from_i2(uint8_t code) { return (int8_t)((code & 3) - ((code & 2) << 1)); }
TW_SMALL uint8_t tw_small_from_u4(uint8_t code) { return code & 15; }
TW_SMALL uint8_t tw_small_from_u2(uint8_t code) { return code & 3; }
TW_SMALL uint8_t tw_small_to_i4(int32_t x) { return (uint8_t)(x & 15); }
TW_SMALL uint8_t tw_small_to_u4(int32_t x) { return (uint8_t)(x & 15); }
TW_SMALL uint8_t tw_small_to_i2(int32_t x) { return (uint8_t)(x & 3); }
TW_SMALL uint8_t tw_small_to_u2(int32_t x) { return (uint8_t)(x & 3); }

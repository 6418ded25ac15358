/* Exponentials for weights that are rounded to bytes, in two thirds of the operations of tw_exp_normal. */
#pragma once

/* exp of what is not above 0, within 2e-7 of it, and 7e-8 more for each 1 below 0. exp(x) = 2^n 2^f, |f| <= 1/2, the second
 * factor by a polynomial of degree 5 (minimax, 9.2e-8). It never falls below exp(-87), which is what -infinity gives. */
TW_INLINE vf tw_exp_near(vf x) {
    vf held = tw_max_of(tw_splat(-87.0f), x), n = tw_round(held * 1.44269504f), f = held * 1.44269504f - n;
    vf p = tw_splat(1.3264727e-3f);
    p = p * f + 9.6715126e-3f;
    p = p * f + 5.5507337e-2f;
    p = p * f + 2.4022242e-1f;
    p = p * f + 6.9314698e-1f;
    p = p * f + 1.0f;
#if defined(__AVX512F__) && TW_LANES == 16
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * tw_bits((__builtin_convertvector(n, vi) + 127) << 23);
#endif
}
